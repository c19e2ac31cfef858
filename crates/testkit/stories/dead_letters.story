# Dead letters: how a job gets there, and what people can do about it.

# A final failure: one transaction, three events that carry the state in which the way began.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
settle   j1  epoch 1  failed BAD_INPUT final  -> failed  version 6  dlq open  dlq_why non_retryable_error  dlq_error BAD_INPUT  dlq_began_in running
events   j1                                 -> enqueued worker_claim started non_retryable_error dlq_written dlq_closed
event    j1  {"number": 6, "cause": "dlq_closed", "from": "dlq_recorded", "to": "failed", "fact": {"type": "buried", "dlq_id": "letter of j1", "began_in": "running", "why": "non_retryable_error"}}
settle   j1  epoch 1  failed BAD_INPUT final  -> failed  recorded yes  version 6

# Retries used up.
enqueue  j1  retries 1                      -> queued
claim    j1  by w1  start                   -> running
settle   j1  failed SMTP_BUSY               -> retry_scheduled  dlq none
pass     1s
claim    j1  by w1  start                   -> running
settle   j1  failed SMTP_BUSY               -> failed  dlq open  dlq_why retries_exhausted  dlq_error SMTP_BUSY  attempt_state FAILED

# The deadline passed, in each state that leads to the dead letters.
enqueue  j1  deadline 10s                   -> queued
enqueue  j2  deadline 10s                   -> queued
enqueue  j3  deadline 10s                   -> queued
claim    j1  by w1  start                   -> running
claim    j2  by w2  start                   -> running
claim    j3  by w3  start                   -> running
die      w2                                 -> j2 interrupted
wait     j3  signal paid                    -> waiting
pass     10s                                -> j1 failed dlq_began_in running  j2 failed dlq_began_in interrupted  j3 failed dlq_began_in waiting
expect   j1                                 -> failed  dlq_why deadline_passed  error DEADLINE_EXCEEDED  next_retry_in none
events   j3                                 -> enqueued worker_claim started job_waiting deadline_passed dlq_written dlq_closed

# An operator gives up, in each state that leads to the dead letters.
enqueue  j1                                 -> queued
enqueue  j2                                 -> queued
enqueue  j3                                 -> queued
claim    j1  by w1  start                   -> running
claim    j2  by w2  start                   -> running
claim    j3  by w3  start                   -> running
die      w2                                 -> j2 interrupted
wait     j3  signal paid                    -> waiting
bury     j1  by ann  because it hangs       -> failed  dlq_began_in running      dlq_why operator_gave_up  dlq open
bury     j2  by ann  because it hangs       -> failed  dlq_began_in interrupted  dlq_why operator_gave_up
bury     j3  by ann  because it hangs       -> failed  dlq_began_in waiting      dlq_why operator_gave_up
event    j1  {"to": "failed", "actor": "user:ann", "fact": {"failure": {"message": "it hangs"}}}
settle   j1  epoch 1  succeeded             -> refused STALE_ATTEMPT

# An operator cannot give up where there is no way to the dead letters, and has to say why.
enqueue  j1  after 10s                      -> scheduled
bury     j1  because no                     -> refused INVALID_TRANSITION
pass     10s                                -> queued
bury     j1  because no                     -> refused INVALID_TRANSITION
claim    j1  by w1                          -> dispatched
bury     j1  because no                     -> refused INVALID_TRANSITION
start    j1                                 -> running
bury     j1  because ""                     -> refused INVALID_INPUT  field reason
settle   j1  failed SMTP_BUSY               -> retry_scheduled
bury     j1  because no                     -> refused INVALID_TRANSITION
cancel   j1                                 -> cancelled
bury     j1  because no                     -> refused INVALID_TRANSITION

# Requeue: a new job of the same task takes over, linked to the letter. The old one stays failed.
enqueue  j1  task t1  payload {"to": "ann"} retries 0  -> queued
run      j1  failed                         -> failed  version 6
requeue  j1  as j2  by alice                -> queued  recorded no  requeued_from j1  task t1  attempt 2  payload {"to": "ann"}  retry_count 0  dlq none
event    j2  {"number": 1, "cause": "enqueued", "from": null, "actor": "user:alice", "fact": {"spec": {"origin": {"requeued": "letter of j1"}}}}
expect   j1                                 -> failed  version 6  dlq requeued  requeued_as j2
run      j2  succeeded                      -> succeeded
expect   j1                                 -> failed  dlq requeued

# Requeue with another payload.
enqueue  j1  payload {"to": "ann"}          -> queued
run      j1  failed                         -> failed
requeue  j1  as j2  by alice  payload {"to": "bob"}  -> queued  payload {"to": "bob"}  task j1
expect   j1                                 -> failed  payload {"to": "ann"}

# A letter is requeued once. The same request again gets its job, another one is refused.
enqueue  j1                                 -> queued
run      j1  failed                         -> failed
requeue  j1  as j2  by alice                -> queued
requeue  j1  as j2  by alice                -> queued  recorded yes  job j2  version 1
requeue  j1  as j3  by alice                -> refused DLQ_REQUEUE_CONFLICT
requeue  j1  as j3  by bob                  -> refused DLQ_REQUEUE_CONFLICT
run      j2  succeeded                      -> succeeded
requeue  j1  as j3  by alice                -> refused DLQ_REQUEUE_CONFLICT

# A job that came from a letter may fail again: it has a letter of its own.
enqueue  j1                                 -> queued
run      j1  failed                         -> failed
requeue  j1  as j2  by alice                -> queued  attempt 2
run      j2  failed                         -> failed  dlq open
requeue  j2  as j3  by alice                -> queued  attempt 3  requeued_from j2  task j1
expect   j1                                 -> failed  dlq requeued  requeued_as j2

# The id of the new job has to be new.
enqueue  j1                                 -> queued
enqueue  j2                                 -> queued
run      j1  failed                         -> failed
requeue  j1  as j2  by alice                -> refused JOB_EXISTS
expect   j1                                 -> failed  dlq open

# There is no letter of a job that did not fail.
enqueue  j1                                 -> queued
requeue  j1  as j2  by alice                -> refused NOT_FOUND
discard  j1  by alice  because no use       -> refused NOT_FOUND
approve  j1  by bob                         -> refused NOT_FOUND

# Discard: one person asks and says why, another one agrees. The job stays failed.
enqueue  j1                                 -> queued
run      j1  failed                         -> failed  dlq open  approvals 0
discard  j1  by alice  because sent by hand -> failed  dlq discard_requested  approvals 1
approve  j1  by alice                       -> refused APPROVAL_REQUIRED
expect   j1                                 -> failed  dlq discard_requested  approvals 1
approve  j1  by bob                         -> failed  dlq discarded  approvals 2  version 6

# Discard: asking again is not agreeing.
enqueue  j1                                 -> queued
run      j1  failed                         -> failed
discard  j1  by alice  because sent by hand -> failed  dlq discard_requested
discard  j1  by bob    because sent by hand -> refused APPROVAL_REQUIRED
expect   j1                                 -> failed  dlq discard_requested  approvals 1

# Discard: nobody can agree to what nobody asked for.
enqueue  j1                                 -> queued
run      j1  failed                         -> failed
approve  j1  by bob                         -> refused APPROVAL_REQUIRED
expect   j1                                 -> failed  dlq open  approvals 0

# Discard: there has to be a reason.
enqueue  j1                                 -> queued
run      j1  failed                         -> failed
discard  j1  by alice  because ""           -> refused INVALID_INPUT  field reason
discard  j1  by alice  because "   "        -> refused INVALID_INPUT  field reason
expect   j1                                 -> failed  dlq open

# Discard: only people have a say.
enqueue  j1                                 -> queued
run      j1  failed                         -> failed
discard  j1  by scheduler  because old      -> refused APPROVAL_REQUIRED
discard  j1  by worker:w1  because old      -> refused APPROVAL_REQUIRED
discard  j1  by alice  because old          -> failed  dlq discard_requested
approve  j1  by recovery                    -> refused APPROVAL_REQUIRED

# What is discarded is closed.
enqueue  j1                                 -> queued
run      j1  failed                         -> failed
discard  j1  by alice  because sent by hand -> failed
approve  j1  by bob                         -> failed  dlq discarded
requeue  j1  as j2  by carol                -> refused DLQ_REQUEUE_CONFLICT
discard  j1  by carol  because again        -> refused DLQ_CLOSED
approve  j1  by carol                       -> refused DLQ_CLOSED
expect   j1                                 -> failed  dlq discarded  approvals 2

# What is requeued is closed, too.
enqueue  j1                                 -> queued
run      j1  failed                         -> failed
requeue  j1  as j2  by alice                -> queued
discard  j1  by alice  because sent by hand -> refused DLQ_CLOSED
approve  j1  by bob                         -> refused DLQ_CLOSED
expect   j1                                 -> failed  dlq requeued  approvals 0

# A requeue under the same id with another payload is not the same requeue.
enqueue  j1                                 -> queued
run      j1  failed                         -> failed      dlq open
requeue  j1  as j2  payload {"n": 1}        -> queued      recorded no
requeue  j1  as j2  payload {"n": 1}        -> queued      recorded yes
requeue  j1  as j2  payload {"n": 2}        -> refused DLQ_REQUEUE_CONFLICT
