# Interruptions: a worker is gone. They use up no retry, and they are bounded.

# A lease that runs out interrupts what runs; the same attempt resumes under a new epoch.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running      epoch 1  attempt 1
pass     29s                                -> running
pass     1s                                 -> interrupted  interruptions 1  attempt 1  retry_count 0
event    j1  {"cause": "lease_expired", "actor": "recovery", "fact": {"counted": true}}
claim    j1  by w2                          -> dispatched   epoch 2  attempt 1  execution_key j1+0
start    j1  epoch 2                        -> running      interruptions 1
settle   j1  epoch 2  succeeded             -> succeeded    attempt 1  retry_count 0

# A session that is proved dead loses all its jobs at once; the jobs of others stay.
enqueue  j1                                 -> queued
enqueue  j2                                 -> queued
enqueue  j3                                 -> queued
claim    j1  by w1  start                   -> running
claim    j2  by w1                          -> dispatched
claim    j3  by w2  start                   -> running
die      w1                                 -> j1 interrupted interruptions 1  j2 queued interruptions 0  j3 running
event    j1  {"cause": "process_restart", "from": "running", "to": "interrupted", "actor": "recovery"}
event    j2  {"cause": "process_restart", "from": "dispatched", "to": "queued", "actor": "recovery"}

# What was claimed and had not started goes back to its queue, and that counts for nothing.
enqueue  j1  max_interruptions 1            -> queued
claim    j1  by w1                          -> dispatched   epoch 1
pass     30s                                -> queued       interruptions 0
event    j1  {"cause": "lease_expired", "from": "dispatched", "to": "queued", "actor": "recovery"}
claim    j1  by w2                          -> dispatched   epoch 2
die      w2                                 -> queued       interruptions 0
claim    j1  by w3  start                   -> running      epoch 3
settle   j1  epoch 3  succeeded             -> succeeded

# An interrupted job that is claimed and lost before it started again is not counted twice.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
die      w1                                 -> interrupted  interruptions 1
claim    j1  by w2                          -> dispatched
die      w2                                 -> queued       interruptions 1
claim    j1  by w3  start                   -> running      attempt 1  epoch 3

# A shutdown in good order interrupts, and is not counted.
enqueue  j1  max_interruptions 1            -> queued
claim    j1  by w1  start                   -> running
release  j1  epoch 1                        -> interrupted  interruptions 0  owner none
event    j1  {"cause": "shutdown", "from": "running", "to": "interrupted", "actor": "worker:w1", "fact": {"counted": false}}
claim    j1  by w2  start                   -> running      epoch 2  attempt 1
release  j1  epoch 2                        -> interrupted  interruptions 0
claim    j1  by w3  start                   -> running      epoch 3
settle   j1  epoch 3  succeeded             -> succeeded

# Progress clears the count: a job that gets on is no poison.
enqueue  j1  max_interruptions 2            -> queued
claim    j1  by w1  start                   -> running
die      w1                                 -> interrupted  interruptions 1
claim    j1  by w2  start                   -> running      interruptions 1
checkpoint j1  epoch 2  {"done": 3}         -> running      interruptions 0
die      w2                                 -> interrupted  interruptions 1
claim    j1  by w3  start                   -> running
checkpoint j1  epoch 3  {"done": 6}         -> running      interruptions 0
settle   j1  epoch 3  succeeded             -> succeeded

# After five interruptions recovery gives up.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
die      w1                                 -> interrupted  interruptions 1  isolated no
claim    j1  by w2  start                   -> running
die      w2                                 -> interrupted  interruptions 2  isolated yes
claim    j1  by w3  start  alone            -> running
die      w3                                 -> interrupted  interruptions 3
claim    j1  by w4  start  alone            -> running
pass     30s                                -> interrupted  interruptions 4
claim    j1  by w5  start  alone            -> running
die      w5                                 -> failed       interruptions 5  error INTERRUPTED_TOO_OFTEN  dlq open  dlq_why recovery_abort  dlq_began_in interrupted
expect   j1                                 -> failed       attempt 1  retry_count 0  attempt_state FAILED
event    j1  {"to": "failed", "actor": "recovery", "fact": {"began_in": "interrupted"}}

# A job can ask for less patience.
enqueue  j1  max_interruptions 2            -> queued
claim    j1  by w1  start                   -> running
die      w1                                 -> interrupted  interruptions 1
claim    j1  by w2  start                   -> running
pass     30s                                -> failed       interruptions 2  dlq_why recovery_abort
events   j1                                 -> enqueued worker_claim started process_restart recovery_resume started lease_expired recovery_abort dlq_written dlq_closed

# Some patience there has to be.
enqueue  j1  max_interruptions 0            -> refused INVALID_INPUT  field max_interruptions

# From the second interruption on a job is claimed alone, so neighbours survive.
enqueue  j1  max_interruptions 3            -> queued
enqueue  j2  max_interruptions 3            -> queued
claim    j1  by w1  start                   -> running
claim    j2  by w1  start                   -> running
die      w1                                 -> j1 interrupted interruptions 1  j2 interrupted interruptions 1
claim    j1  by w2  start                   -> running
claim    j2  by w2  start                   -> running
die      w2                                 -> j1 interrupted interruptions 2 isolated yes  j2 interrupted interruptions 2 isolated yes
claim    j1  by w3  start                   -> refused CLAIM_ALONE
claim    j2  by w3  start                   -> refused CLAIM_ALONE
# The poison job is found out when it is alone; its neighbour gets on.
claim    j1  by w4  start  alone            -> running
die      w4                                 -> failed       interruptions 3  dlq_why recovery_abort
claim    j2  by w5  start  alone            -> running
settle   j2  succeeded                      -> succeeded    interruptions 2

# Interruptions and retries are counted apart.
enqueue  j1  retries 1                      -> queued
claim    j1  by w1  start                   -> running
die      w1                                 -> interrupted      interruptions 1  retry_count 0
claim    j1  by w2  start                   -> running
settle   j1  failed SMTP_BUSY               -> retry_scheduled  interruptions 1  retry_count 1
pass     1s
claim    j1  by w2  start                   -> running          attempt 2  execution_key j1+1
die      w2                                 -> interrupted      interruptions 2  retry_count 1
claim    j1  by w3  start  alone            -> running          attempt 2  execution_key j1+1
settle   j1  failed SMTP_BUSY               -> failed           retry_count 1  dlq_why retries_exhausted
