# Time-outs: what is enforced whatever a handler does.

# start_to_close: the execution ends and is tried again; then the retries are used up.
enqueue  j1  timeout 5s  retries 1          -> queued
claim    j1  by w1                          -> dispatched
pass     10s                                -> dispatched
start    j1                                 -> running
pass     4999ms                             -> running
pass     1ms                                -> retry_scheduled  error TASK_TIMEOUT  retry_count 1  next_retry_in 1s  attempt_state FAILED
event    j1  {"cause": "timeout", "from": "running", "to": "retry_scheduled", "attempt": 1, "actor": "scheduler", "fact": {"failure": {"code": "TASK_TIMEOUT"}}}
settle   j1  epoch 1  succeeded             -> refused STALE_ATTEMPT
pass     1s
claim    j1  by w1  start                   -> running
pass     5s                                 -> failed           error TASK_TIMEOUT  dlq_why retries_exhausted  dlq_error TASK_TIMEOUT
events   j1                                 -> enqueued worker_claim started timeout retry_due started retries_exhausted dlq_written dlq_closed

# start_to_close: renewals keep the lease, not the time.
enqueue  j1  timeout 20s                    -> queued
claim    j1  by w1  start                   -> running
pass     15s
renew    j1  epoch 1  heartbeat             -> running
pass     5s                                 -> retry_scheduled  error TASK_TIMEOUT

# start_to_close bounds one execution: after a wait or an interruption it begins again.
enqueue  j1  timeout 5s                     -> queued
claim    j1  by w1  start                   -> running
pass     4s                                 -> running
wait     j1  time 1h                        -> waiting
pass     1h                                 -> queued
claim    j1  by w1  start                   -> running
pass     4s                                 -> running
die      w1                                 -> interrupted
pass     1h                                 -> interrupted
claim    j1  by w2  start                   -> running
pass     4s                                 -> running
pass     1s                                 -> retry_scheduled  error TASK_TIMEOUT  retry_count 1

# start_to_close: a job that was asked to stop is not tried again.
enqueue  j1  timeout 5s                     -> queued
claim    j1  by w1  start                   -> running
cancel   j1                                 -> running          cancel requested
pass     5s                                 -> cancelled        retry_count 0

# heartbeat: silence from the start on is a failure; a sign of life begins it again.
enqueue  j1  heartbeat 5s  retries 1        -> queued
claim    j1  by w1                          -> dispatched
pass     10s                                -> dispatched
start    j1                                 -> running
pass     4s                                 -> running
renew    j1  heartbeat                      -> running
pass     4s                                 -> running
pass     1s                                 -> retry_scheduled  error HEARTBEAT_TIMEOUT  retry_count 1
event    j1  {"cause": "heartbeat_timeout", "from": "running", "to": "retry_scheduled", "actor": "scheduler"}
pass     1s
claim    j1  by w1  start                   -> running
pass     5s                                 -> failed           error HEARTBEAT_TIMEOUT  dlq_why retries_exhausted

# heartbeat: a renewal of the worker is no sign of life of the handler.
enqueue  j1  heartbeat 5s                   -> queued
claim    j1  by w1  start                   -> running
pass     4s
renew    j1                                 -> running
pass     1s                                 -> retry_scheduled  error HEARTBEAT_TIMEOUT

# heartbeat: a waiting job may be silent.
enqueue  j1  heartbeat 5s                   -> queued
claim    j1  by w1  start                   -> running
wait     j1  signal paid                    -> waiting
pass     1h                                 -> waiting

# schedule_to_start: a job that nobody starts in time is cancelled, with its code.
enqueue  j1  start_within 10s               -> queued
pass     9s                                 -> queued
pass     1s                                 -> cancelled        error SCHEDULE_TO_START_TIMEOUT  ended_by schedule_to_start_timeout  dlq none
event    j1  {"cause": "schedule_to_start_timeout", "from": "queued", "to": "cancelled", "actor": "scheduler", "fact": {"failure": {"code": "SCHEDULE_TO_START_TIMEOUT"}}}

# schedule_to_start: claimed is not started.
enqueue  j1  start_within 10s               -> queued
claim    j1  by w1                          -> dispatched
pass     10s                                -> cancelled        error SCHEDULE_TO_START_TIMEOUT
start    j1  epoch 1                        -> refused STALE_ATTEMPT

# schedule_to_start: it counts from the time the job is due.
enqueue  j1  after 1h  start_within 10s     -> scheduled
pass     1h                                 -> queued
pass     9s                                 -> queued
pass     1s                                 -> cancelled        error SCHEDULE_TO_START_TIMEOUT

# schedule_to_start: it is about the first start only.
enqueue  j1  start_within 10s               -> queued
claim    j1  by w1  start                   -> running
settle   j1  failed SMTP_BUSY               -> retry_scheduled
pass     1h                                 -> retry_scheduled
claim    j1  by w1                          -> dispatched
pass     20s                                -> dispatched
release  j1                                 -> queued
pass     1h                                 -> queued

# The deadline passes in a state with no way to the dead letters: cancelled, with its code.
enqueue  j1  deadline 20s                   -> queued
enqueue  j2  deadline 20s                   -> queued
enqueue  j3  deadline 20s  base 1h  cap 1h  -> queued
claim    j2  by w2                          -> dispatched
claim    j3  by w3  start                   -> running
settle   j3  failed SMTP_BUSY               -> retry_scheduled
pass     19s                                -> j1 queued  j2 dispatched  j3 retry_scheduled
pass     1s                                 -> j1 cancelled error DEADLINE_EXCEEDED  j2 cancelled error DEADLINE_EXCEEDED  j3 cancelled error DEADLINE_EXCEEDED
expect   j3                                 -> cancelled  ended_by deadline_passed  next_retry_in none  dlq none
event    j1  {"cause": "deadline_passed", "from": "queued", "to": "cancelled", "actor": "scheduler", "fact": {"failure": {"code": "DEADLINE_EXCEEDED"}}}
start    j2  epoch 1                        -> refused STALE_ATTEMPT

# The deadline passes in a state that leads to the dead letters: failed, with a letter.
enqueue  j1  deadline 20s                   -> queued
enqueue  j2  deadline 20s                   -> queued
enqueue  j3  deadline 20s                   -> queued
claim    j1  by w1  start                   -> running
claim    j2  by w2  start                   -> running
claim    j3  by w3  start                   -> running
die      w2                                 -> j2 interrupted
wait     j3  signal paid                    -> waiting
pass     20s                                -> j1 failed dlq open  j2 failed dlq open  j3 failed dlq open
expect   j1                                 -> failed  error DEADLINE_EXCEEDED  dlq_why deadline_passed
settle   j1  epoch 1  succeeded             -> refused STALE_ATTEMPT

# A job whose timer comes late was scheduled when its deadline passed: it ends all the same.
enqueue  j1  after 10s  deadline 20s        -> scheduled
pass     1h  unnoticed                      -> scheduled
pass     0s                                 -> cancelled  error DEADLINE_EXCEEDED

# What is done in time has no deadline any more.
enqueue  j1  deadline 20s                   -> queued
run      j1  succeeded                      -> succeeded
pass     20s                                -> succeeded

# A deadline lies ahead, and after the time the job is due; a time-out is not zero.
enqueue  j1  deadline 0s                    -> refused INVALID_INPUT  field deadline_at
enqueue  j1  after 10s  deadline 10s        -> refused INVALID_INPUT  field deadline_at
enqueue  j1  timeout 0s                     -> refused INVALID_INPUT  field timeout_ms
enqueue  j1  heartbeat 0s                   -> refused INVALID_INPUT  field heartbeat_timeout_ms
enqueue  j1  start_within 0s                -> refused INVALID_INPUT  field schedule_to_start_ms
enqueue  j1  timeout 367d                   -> refused INVALID_INPUT  field timeout_ms

# Of two that run out at the same time the more final one counts.
enqueue  j1  timeout 30s                    -> queued
enqueue  j2  timeout 30s  deadline 30s      -> queued
claim    j1  by w1  start  lease 30s        -> running
claim    j2  by w1  start  lease 30s        -> running
pass     30s                                -> j1 retry_scheduled error TASK_TIMEOUT interruptions 0  j2 failed error DEADLINE_EXCEEDED dlq_began_in running

# A job that timed out and then succeeds has no error left.
enqueue  j1  timeout 10s                    -> queued
claim    j1  by w1  start  lease 1m         -> running
pass     10s                                -> retry_scheduled  error TASK_TIMEOUT
pass     1s
claim    j1  by w1  start                   -> running          error TASK_TIMEOUT
settle   j1  succeeded                      -> succeeded        error none
