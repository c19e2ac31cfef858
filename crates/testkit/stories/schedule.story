# Time and order: when a job becomes due, and how long a retry waits.

# A job with a time in the future is scheduled until then.
enqueue  j1  after 10s                      -> scheduled  due_in 10s
event    j1  {"cause": "scheduled", "from": null, "to": "scheduled"}
claim    j1  by w1                          -> refused INVALID_TRANSITION
pass     9999ms                             -> scheduled
pass     1ms                                -> queued     due_in 0s
event    j1  {"cause": "due", "from": "scheduled", "to": "queued", "actor": "scheduler"}
claim    j1  by w1                          -> dispatched

# A job with a time that is past, or without one, is due at once.
enqueue  j1                                 -> queued     due_in 0s
pass     1h
enqueue  j2  at 30m                         -> queued     due_in 0s
enqueue  j3  after 0s                       -> queued
event    j2  {"cause": "enqueued", "from": null, "to": "queued"}

# Timers fire in the order of time, whatever the order of the jobs.
enqueue  j1  after 30s                      -> scheduled
enqueue  j2  after 10s                      -> scheduled
enqueue  j3  after 20s                      -> scheduled
pass     10s                                -> j1 scheduled  j2 queued  j3 scheduled
pass     10s                                -> j1 scheduled  j2 queued  j3 queued
pass     1h                                 -> j1 queued     j2 queued  j3 queued
event    j1  {"at": "2026-01-01T00:00:30Z"}

# However urgent, a job is not claimed early.
enqueue  j1  after 10s  priority -1000      -> scheduled
claim    j1  by w1                          -> refused INVALID_TRANSITION
pass     9s                                 -> scheduled
claim    j1  by w1                          -> refused INVALID_TRANSITION
enqueue  j2  priority -1001                 -> refused INVALID_INPUT  field priority
enqueue  j2  priority 1001                  -> refused INVALID_INPUT  field priority

# A retry waits 1, 2 and 4 seconds, and is not claimed early.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
settle   j1  failed SMTP_BUSY               -> retry_scheduled  next_retry_in 1000ms
claim    j1  by w1                          -> refused NOT_DUE
pass     999ms                              -> retry_scheduled  next_retry_in 1ms
claim    j1  by w1                          -> refused NOT_DUE
pass     1ms
claim    j1  by w1  start                   -> running
settle   j1  failed SMTP_BUSY               -> retry_scheduled  next_retry_in 2000ms
pass     1999ms
claim    j1  by w1                          -> refused NOT_DUE
pass     1ms
claim    j1  by w1  start                   -> running
settle   j1  failed SMTP_BUSY               -> retry_scheduled  next_retry_in 4000ms
pass     4s
claim    j1  by w1  start                   -> running
settle   j1  failed SMTP_BUSY               -> failed

# The delay doubles up to its cap.
enqueue  j1  retries 7                      -> queued
run      j1  transient                      -> retry_scheduled  next_retry_in 1s
run      j1  transient                      -> retry_scheduled  next_retry_in 2s
run      j1  transient                      -> retry_scheduled  next_retry_in 4s
run      j1  transient                      -> retry_scheduled  next_retry_in 8s
run      j1  transient                      -> retry_scheduled  next_retry_in 16s
run      j1  transient                      -> retry_scheduled  next_retry_in 30s
run      j1  transient                      -> retry_scheduled  next_retry_in 30s
run      j1  transient                      -> failed

# A job may bring its own base and cap.
enqueue  j1  base 100ms  cap 250ms          -> queued
run      j1  transient                      -> retry_scheduled  next_retry_in 100ms
run      j1  transient                      -> retry_scheduled  next_retry_in 200ms
run      j1  transient                      -> retry_scheduled  next_retry_in 250ms

# Jitter comes on top, also on top of the cap, and lies between 0 and 300 ms.
enqueue  j1  base 20s                       -> queued
claim    j1  by w1  start                   -> running
settle   j1  failed SMTP_BUSY  jitter 301ms -> refused INVALID_INPUT  field jitter_ms
settle   j1  failed SMTP_BUSY  jitter 120ms -> retry_scheduled  next_retry_in 20120ms
pass     20119ms
claim    j1  by w1                          -> refused NOT_DUE
pass     1ms
claim    j1  by w1  start                   -> running
settle   j1  failed SMTP_BUSY  jitter 300ms -> retry_scheduled  next_retry_in 30300ms

# A failure can ask for a longer wait, never for a shorter one.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
settle   j1  failed RATE_LIMIT  retry_after 60s  -> retry_scheduled  next_retry_in 60s
pass     60s
claim    j1  by w1  start                   -> running
settle   j1  failed RATE_LIMIT  retry_after 1s   -> retry_scheduled  next_retry_in 2s

# Retry now: the retry is due at once, and it is still the same retry.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
settle   j1  failed SMTP_BUSY               -> retry_scheduled  next_retry_in 1s  retry_count 1
retry_now j1  by ann                        -> retry_scheduled  next_retry_in 0s  retry_count 1  recorded no
event    j1  {"cause": "retry_now", "from": "retry_scheduled", "to": "retry_scheduled", "actor": "user:ann"}
retry_now j1  by ann                        -> retry_scheduled  recorded yes
claim    j1  by w1  start                   -> running          attempt 2  retry_count 1
event    j1  {"cause": "started", "attempt": 2}

# Retry now is about jobs that wait for a retry, and about no others.
enqueue  j1  after 10s                      -> scheduled
retry_now j1                                -> refused INVALID_TRANSITION
pass     10s                                -> queued
retry_now j1                                -> refused INVALID_TRANSITION
claim    j1  by w1                          -> dispatched
retry_now j1                                -> refused INVALID_TRANSITION
start    j1                                 -> running
retry_now j1                                -> refused INVALID_TRANSITION
wait     j1  signal paid                    -> waiting
retry_now j1                                -> refused INVALID_TRANSITION
bury     j1  because it is enough           -> failed
retry_now j1                                -> refused INVALID_TRANSITION

# Who does not want to wait makes a scheduled job due at once.
enqueue  j1  after 10s                      -> scheduled
run_now  j1  by ann                         -> queued
event    j1  {"cause": "run_now", "from": "scheduled", "to": "queued", "actor": "user:ann"}
event    j1  tasks  {"from_state": "pending", "to_state": "ready"}
claim    j1  by w1  start                   -> running
run_now  j1  by ann                         -> refused INVALID_TRANSITION

# The development call runs a job now, due or not.
enqueue  j1  after 10s                      -> scheduled
run      j1  succeeded                      -> succeeded
