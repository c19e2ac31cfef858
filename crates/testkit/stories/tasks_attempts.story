# The rules of attempts: they count from 1, and max_attempts = 1 + max_retries.

# The attempt is 1 before, during and after the first execution.
enqueue  j1  task_new t1  retries 2         -> queued           attempt 1  attempts 0
claim    j1  by w1                          -> dispatched       attempt 1  attempt_state PLANNED
start    j1  epoch 1                        -> running          attempt 1  attempt_state RUNNING
settle   j1  epoch 1  succeeded  stats {"rows": 7}  -> succeeded  attempt 1  attempt_state SUCCEEDED  stats {"rows": 7}

# pending -> ready -> running -> succeeded.
enqueue  j1  task_new t1  after 10s         -> scheduled        attempt 1  started no
pass     10s                                -> queued           attempt 1  started no
claim    j1  by w1  start                   -> running          attempt 1  started yes
settle   j1  epoch 1  succeeded             -> succeeded        attempt 1

# max_retries are extra tries: with 2 of them the third attempt is the last.
enqueue  j1  task_new t1  retries 2         -> queued
claim    j1  by w1  start                   -> running          attempt 1
settle   j1  epoch 1  failed TASK_EXECUTION_FAILED  -> retry_scheduled  attempt 1  attempt_state FAILED  attempt_error TASK_EXECUTION_FAILED
pass     1s
claim    j1  by w1  start                   -> running          attempt 2  attempts 2  attempt_state RUNNING
settle   j1  epoch 2  failed TASK_EXECUTION_FAILED  -> retry_scheduled  attempt 2
pass     2s
claim    j1  by w1  start                   -> running          attempt 3
settle   j1  epoch 3  failed TASK_EXECUTION_FAILED  -> failed   attempt 3  retry_count 2  dlq_why retries_exhausted  attempts 3
event    j1  {"attempt": 3, "fact": {"began_in": "running", "why": "retries_exhausted"}}

# A time-out is retryable too, and uses up attempts like any other error.
enqueue  j1  task_new t1  retries 1  timeout 5s  -> queued
claim    j1  by w1  start                   -> running          attempt 1
pass     5s                                 -> retry_scheduled  attempt 1  error TASK_TIMEOUT
pass     1s
claim    j1  by w1  start                   -> running          attempt 2
pass     5s                                 -> failed           attempt 2  dlq_why retries_exhausted  dlq_error TASK_TIMEOUT

# Without retries the first attempt is the last.
enqueue  j1  task_new t1  retries 0         -> queued
claim    j1  by w1  start                   -> running          attempt 1
settle   j1  epoch 1  failed TASK_EXECUTION_FAILED  -> failed   attempt 1  retry_count 0  dlq_why retries_exhausted

# An error that is not retryable fails at once, whatever is left, and nothing is exhausted.
enqueue  j1  task_new t1  retries 2         -> queued
claim    j1  by w1  start                   -> running
settle   j1  epoch 1  failed BAD_INPUT final  -> failed         attempt 1  retry_count 0  dlq_why non_retryable_error

# The attempt grows when the retry is claimed, not when it is scheduled.
enqueue  j1  task_new t1                    -> queued
claim    j1  by w1  start                   -> running          attempt 1
settle   j1  epoch 1  failed SMTP_BUSY      -> retry_scheduled  attempt 1  retry_count 1
event    j1  {"to": "retry_scheduled", "attempt": 1, "retry_count": 1}
pass     1s                                 -> retry_scheduled  attempt 1
claim    j1  by w1                          -> dispatched       attempt 2  retry_count 1  attempt_state PLANNED

# An attempt that is handed back before it started is the same attempt when it is claimed again.
enqueue  j1  task_new t1                    -> queued
claim    j1  by w1  start                   -> running
settle   j1  epoch 1  failed SMTP_BUSY      -> retry_scheduled
pass     1s
claim    j1  by w1                          -> dispatched       attempt 2  epoch 2
release  j1  epoch 2                        -> queued           attempt 2
claim    j1  by w2                          -> dispatched       attempt 2  epoch 3  attempts 2
pass     30s                                -> queued           attempt 2
claim    j1  by w3  start                   -> running          attempt 2  epoch 4  attempts 2

# An interruption uses up no attempt: the same attempt goes on under a new epoch.
enqueue  j1  task_new t1  retries 0         -> queued
claim    j1  by w1  start                   -> running          attempt 1  epoch 1
die      w1                                 -> interrupted      attempt 1  retry_count 0  attempt_state RUNNING
claim    j1  by w2                          -> dispatched       attempt 1  epoch 2  attempt_state RUNNING
start    j1  epoch 2                        -> running          attempt 1  attempts 1
settle   j1  epoch 2  succeeded             -> succeeded        attempt 1  retry_count 0

# A wait uses up no attempt.
enqueue  j1  task_new t1  retries 0         -> queued
claim    j1  by w1  start                   -> running          attempt 1
wait     j1  time 10s                       -> waiting          attempt 1  attempt_state RUNNING
pass     10s                                -> queued           attempt 1  attempt_state RUNNING
claim    j1  by w1  start                   -> running          attempt 1  epoch 2
settle   j1  epoch 2  partial  remaining {"rows": 3}  -> partial  attempt 1  attempt_state PARTIAL  remaining {"rows": 3}

# pending, ready and running can be cancelled; an attempt that failed before stays failed.
enqueue  j1  task_new t1  after 10s         -> scheduled
cancel   j1                                 -> cancelled        attempts 0
enqueue  j2  task_new t2                    -> queued
cancel   j2                                 -> cancelled        attempts 0
enqueue  j3  task_new t3                    -> queued
claim    j3  by w1  start                   -> running
cancel   j3  force                          -> cancelled        attempt_state CANCELLED
enqueue  j4  task_new t4                    -> queued
claim    j4  by w1  start                   -> running
settle   j4  epoch 1  failed SMTP_BUSY      -> retry_scheduled  attempt_state FAILED
cancel   j4                                 -> cancelled        attempt_state FAILED
