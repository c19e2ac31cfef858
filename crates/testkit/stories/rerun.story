# Re-runs: a new job for the same task. Attempts of a task go on counting, and one job at a time is active.

# A task that is active cannot be run again; one that is at its end can.
enqueue  j1  task t1                        -> queued     attempt 1
enqueue  j2  task t1                        -> refused TASK_ACTIVE  job j1
claim    j1  by w1  start                   -> running
enqueue  j2  task t1                        -> refused TASK_ACTIVE  job j1
settle   j1  succeeded                      -> succeeded
enqueue  j2  task t1                        -> queued     attempt 2  task t1

# In every state that is no end the task is active.
enqueue  j1  task t1  after 10s             -> scheduled
enqueue  j2  task t1                        -> refused TASK_ACTIVE
pass     10s                                -> j1 queued
enqueue  j2  task t1                        -> refused TASK_ACTIVE
claim    j1  by w1                          -> dispatched
enqueue  j2  task t1                        -> refused TASK_ACTIVE
start    j1                                 -> running
wait     j1  signal paid                    -> waiting
enqueue  j2  task t1                        -> refused TASK_ACTIVE
signal   j1  paid                           -> queued
claim    j1  by w1  start                   -> running
die      w1                                 -> interrupted
enqueue  j2  task t1                        -> refused TASK_ACTIVE
claim    j1  by w2  start                   -> running
settle   j1  failed SMTP_BUSY               -> retry_scheduled
enqueue  j2  task t1                        -> refused TASK_ACTIVE
cancel   j1                                 -> cancelled  attempt 1
enqueue  j2  task t1                        -> queued     attempt 2

# The attempts of a re-run go on where the failed job stopped, and its retries are fresh.
enqueue  j1  task t1  retries 2             -> queued
run      j1  transient                      -> retry_scheduled
run      j1  transient                      -> retry_scheduled
run      j1  transient                      -> failed     attempt 3  retry_count 2
rerun    j1  as j2  by ann                  -> queued     attempt 4  retry_count 0  rerun_of j1  task t1
event    j2  {"number": 1, "attempt": 4, "actor": "user:ann"}
run      j2  transient                      -> retry_scheduled  attempt 4  retry_count 1
run      j2  failed                         -> failed     attempt 5
rerun    j2  as j3                          -> queued     attempt 6
expect   j1                                 -> failed     attempt 3  dlq requeued
expect   j2                                 -> failed     attempt 5  dlq requeued

# While a re-run is active there is no other one.
enqueue  j1  task t1                        -> queued
run      j1  failed                         -> failed
rerun    j1  as j2                          -> queued
rerun    j1  as j3                          -> refused TASK_ACTIVE  job j2
requeue  j1  as j3  by ann                  -> refused DLQ_REQUEUE_CONFLICT
enqueue  j3  task t1                        -> refused TASK_ACTIVE  job j2
cancel   j2                                 -> cancelled
rerun    j2  as j3                          -> queued     attempt 3

# A re-run takes over from the dead letter, as a requeue does: the work of a letter is done again once.
enqueue  j1  task t1                        -> queued
run      j1  failed                         -> failed     dlq open
rerun    j1  as j2  by ann                  -> queued     attempt 2  requeued_from j1  rerun_of j1
expect   j1                                 -> failed     dlq requeued
run      j2  succeeded                      -> succeeded
requeue  j1  as j3  by bob                  -> refused DLQ_REQUEUE_CONFLICT
rerun    j1  as j3  by bob                  -> refused DLQ_REQUEUE_CONFLICT
discard  j1  by bob  because old           -> refused DLQ_CLOSED
expect   j1                                 -> failed     dlq requeued

# What was requeued, or thrown away, is not run again by its old name either.
enqueue  j1                                 -> queued
run      j1  failed                         -> failed
requeue  j1  as j2  by ann                  -> queued
run      j2  succeeded                      -> succeeded
rerun    j1  as j3                          -> refused DLQ_REQUEUE_CONFLICT
enqueue  j4                                 -> queued
run      j4  failed                         -> failed
discard  j4  by ann  because old           -> failed     dlq discard_requested
approve  j4  by bob                         -> failed     dlq discarded
rerun    j4  as j5                          -> refused DLQ_REQUEUE_CONFLICT

# A letter that somebody wants to discard is not discarded yet: a re-run takes over from it.
enqueue  j1                                 -> queued
run      j1  failed                         -> failed
discard  j1  by ann  because old           -> failed     dlq discard_requested
rerun    j1  as j2  by bob                  -> queued
approve  j1  by bob                         -> refused DLQ_CLOSED

# The same re-run again gets its job.
enqueue  j1                                 -> queued
run      j1  failed                         -> failed
rerun    j1  as j2                          -> queued     recorded no
rerun    j1  as j2                          -> queued     recorded yes  job j2  version 1
run      j2  succeeded                      -> succeeded
rerun    j1  as j2                          -> succeeded  recorded yes  job j2

# A job that named no task is a task of its own.
enqueue  j1  payload {"to": "ann"}  queue mail  -> queued  task j1
run      j1  failed                         -> failed
rerun    j1  as j2                          -> queued     task j1  attempt 2  payload {"to": "ann"}
run      j2  failed                         -> failed
rerun    j2  as j3                          -> queued     task j1  attempt 3  rerun_of j2

# A cancelled job can be run again, too; its deadline is not inherited.
enqueue  j1  deadline 10s                   -> queued
pass     10s                                -> cancelled  error DEADLINE_EXCEEDED
rerun    j1  as j2                          -> queued     attempt 2
pass     1d                                 -> queued

# What succeeded, if only in part, is done: it is not run again.
enqueue  j1                                 -> queued
run      j1  succeeded                      -> succeeded
rerun    j1  as j2                          -> refused INVALID_TRANSITION
enqueue  j3                                 -> queued
claim    j3  by w1  start                   -> running
settle   j3  partial  remaining {"rows": 3} -> partial
rerun    j3  as j4                          -> refused INVALID_TRANSITION

# The id of the new job has to be new.
enqueue  j1                                 -> queued
enqueue  j2                                 -> queued
run      j1  failed                         -> failed
rerun    j1  as j2                          -> refused JOB_EXISTS

# The tasks of tenants are apart.
enqueue  j1  task t1  tenant acme           -> queued     attempt 1
enqueue  j2  task t1  tenant bolt           -> queued     attempt 1
run      j1  failed                         -> failed
rerun    j1  as j3                          -> queued     attempt 2  tenant acme

# A job that is active is not run again.
enqueue  j1  task t1                        -> queued
rerun    j1  as j2                          -> refused TASK_ACTIVE  job j1
claim    j1  by w1  start                   -> running
rerun    j1  as j2                          -> refused TASK_ACTIVE  job j1

# The id of a job, named as a task, means the task of that job.
enqueue  j1                                 -> queued
enqueue  j2  task job_00000000000000000000000001  -> refused TASK_ACTIVE  job j1
run      j1  succeeded                      -> succeeded   attempt 1
enqueue  j2  task job_00000000000000000000000001  -> queued      attempt 2

# The id of a job that does not exist is no task: a job that gets this id later would meet it.
enqueue  j1  task job_00000000000000000000000002  -> refused INVALID_INPUT  field task_id
enqueue  j2                                 -> queued      attempt 1

# A cancelled job is run again once: not while its re-run is active, and not after that.
enqueue  j1                                 -> queued
cancel   j1                                 -> cancelled
rerun    j1  as j2                          -> queued     attempt 2  rerun_of j1
rerun    j1  as j3                          -> refused TASK_ACTIVE  job j2
run      j2  succeeded                      -> succeeded
rerun    j1  as j3                          -> refused TASK_DUPLICATE
rerun    j1  as j2                          -> succeeded  recorded yes  job j2

# It is the last job of a task that is run again.
enqueue  j1  task t1                        -> queued
cancel   j1                                 -> cancelled
rerun    j1  as j2                          -> queued
cancel   j2                                 -> cancelled
rerun    j1  as j3                          -> refused TASK_DUPLICATE
rerun    j2  as j3                          -> queued     attempt 3
run      j3  failed                         -> failed     dlq open
rerun    j2  as j4                          -> refused TASK_DUPLICATE
rerun    j3  as j4                          -> queued     attempt 4

# A new job of a task whose last job failed takes over from the dead letter too: the work is done again once.
enqueue  j1  task t1                        -> queued
run      j1  failed                         -> failed     dlq open
enqueue  j2  task t1  payload {"n": 2}      -> queued     attempt 2  requeued_from j1  rerun_of j1  recorded no
expect   j1                                 -> failed     dlq requeued  requeued_as j2
enqueue  j2  task t1  payload {"n": 2}      -> queued     recorded yes
run      j2  succeeded                      -> succeeded
requeue  j1  as j3  by ann                  -> refused DLQ_REQUEUE_CONFLICT
rerun    j1  as j3                          -> refused DLQ_REQUEUE_CONFLICT
enqueue  j3  task t1                        -> queued     attempt 3  requeued_from none

# Also if the task is named by the id of the job, and if somebody wants to discard the letter.
enqueue  j1                                 -> queued
run      j1  failed                         -> failed
discard  j1  by ann  because old           -> failed     dlq discard_requested
enqueue  j2  task job_00000000000000000000000001  -> queued  attempt 2  requeued_from j1
approve  j1  by bob                         -> refused DLQ_CLOSED
run      j2  failed                         -> failed     dlq open
enqueue  j3  task job_00000000000000000000000001  -> queued  attempt 3  requeued_from j2
expect   j1                                 -> failed     dlq requeued  requeued_as j2
expect   j2                                 -> failed     dlq requeued  requeued_as j3

# A letter that was discarded stays so, and the task may be named by a new job.
enqueue  j1  task t1                        -> queued
run      j1  failed                         -> failed
discard  j1  by ann  because old           -> failed
approve  j1  by bob                         -> failed     dlq discarded
enqueue  j2  task t1                        -> queued     attempt 2  requeued_from none
expect   j1                                 -> failed     dlq discarded

# Whoever may not run a task again, or not yet, leaves the letter open.
enqueue  j1  task t1                        -> queued
run      j1  failed                         -> failed
enqueue  j2  task_new t1                    -> refused TASK_DUPLICATE
enqueue  j2  task t1  parent j1             -> refused INVALID_INPUT
expect   j1                                 -> failed     dlq open
