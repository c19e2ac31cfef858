# Cancel: a job that runs or waits is asked first; any other is cancelled at once.

# Scheduled: at once.
enqueue  j1  after 10s                      -> scheduled
cancel   j1                                 -> cancelled   ended_by cancel_command  error none
pass     10s                                -> cancelled

# Queued: at once.
enqueue  j1                                 -> queued
cancel   j1                                 -> cancelled
claim    j1  by w1                          -> refused INVALID_TRANSITION

# Dispatched: at once, and its worker learns that the lease is lost.
enqueue  j1                                 -> queued
claim    j1  by w1                          -> dispatched
cancel   j1                                 -> cancelled   owner none  attempt_state CANCELLED
start    j1  epoch 1                        -> refused STALE_ATTEMPT
renew    j1  epoch 1                        -> refused STALE_ATTEMPT

# Retry scheduled: at once, and there is no retry any more.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
settle   j1  epoch 1  failed SMTP_BUSY      -> retry_scheduled
cancel   j1                                 -> cancelled   next_retry_in none
pass     1d                                 -> cancelled

# Interrupted: at once.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
die      w1                                 -> interrupted
cancel   j1                                 -> cancelled

# Running: it is asked, a renewal brings the news, and the handler cleans up and settles.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running     cancel none
cancel   j1  by ann  because wrong address  -> running     cancel requested  grace_in 30s  owner w1
event    j1  {"cause": "cancel_requested", "from": "running", "to": "running", "actor": "user:ann", "fact": {"reason": "wrong address", "grace_until": "+30s"}}
renew    j1  epoch 1                        -> running     cancel requested
settle   j1  epoch 1  cancelled  because mail undone  -> cancelled  ended_by cancel_command  attempt_state CANCELLED
event    j1  {"cause": "cancel_command", "actor": "worker:w1", "fact": {"reason": "mail undone"}}
events   j1                                 -> enqueued worker_claim started cancel_requested cancel_command

# Running: asked twice is asked once, and the grace period does not begin again.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
cancel   j1  grace 20s                      -> running     recorded no   grace_in 20s  version 4
pass     5s
cancel   j1  grace 20s                      -> running     recorded yes  grace_in 15s  version 4
pass     15s                                -> cancelled

# Running: when the grace period is over it is cancelled all the same.
enqueue  j1                                 -> queued
claim    j1  by w1  start  lease 60s        -> running
cancel   j1  grace 10s  because it hangs    -> running
pass     9s                                 -> running
pass     1s                                 -> cancelled   owner none
event    j1  {"cause": "cancel_command", "actor": "scheduler", "fact": {"reason": "it hangs"}}
settle   j1  epoch 1  cancelled             -> refused STALE_ATTEMPT

# Running: when its lease lapses it is cancelled, not interrupted.
enqueue  j1                                 -> queued
claim    j1  by w1  start  lease 10s        -> running
cancel   j1  grace 60s                      -> running
pass     10s                                -> cancelled   interruptions 0
events   j1                                 -> enqueued worker_claim started cancel_requested cancel_command

# Running: when its worker is dead it is cancelled at once.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
cancel   j1                                 -> running     cancel requested
die      w1                                 -> cancelled

# Running: when its worker gives it back it is cancelled.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
cancel   j1                                 -> running     cancel requested
release  j1  epoch 1                        -> cancelled

# Running: with force nobody is asked.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
cancel   j1  force                          -> cancelled   cancel none
settle   j1  epoch 1  succeeded             -> refused STALE_ATTEMPT

# Running: force after a request does not wait for the grace period.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
cancel   j1                                 -> running     cancel requested
cancel   j1  force                          -> cancelled

# Asked to stop, a handler that has finished has finished.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
cancel   j1                                 -> running     cancel requested
settle   j1  epoch 1  succeeded             -> succeeded
pass     30s                                -> succeeded

# Asked to stop, a handler that did a part has done a part.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
cancel   j1                                 -> running     cancel requested
settle   j1  epoch 1  partial  remaining {"rows": 3}  -> partial

# Asked to stop, a handler that fails is not tried again.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
cancel   j1                                 -> running     cancel requested
settle   j1  epoch 1  failed SMTP_BUSY      -> cancelled   retry_count 0  next_retry_in none  dlq none
settle   j1  epoch 1  failed SMTP_BUSY      -> cancelled   recorded yes

# Asked to stop, a failure that is final is a failure.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
cancel   j1                                 -> running     cancel requested
settle   j1  epoch 1  failed BAD_INPUT final  -> failed    dlq open

# Asked to stop, it may not begin to wait.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
cancel   j1                                 -> running     cancel requested
wait     j1  epoch 1  signal paid           -> refused CANCEL_REQUESTED

# Nobody has to ask: a handler may stop by itself.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
settle   j1  epoch 1  cancelled             -> cancelled

# Waiting: it wakes, so that its handler can clean up.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
wait     j1  epoch 1  signal paid           -> waiting
cancel   j1  grace 60s                      -> queued      cancel requested  woken cancelled  grace_in 60s
claim    j1  by w2  start                   -> running     cancel requested  epoch 2
settle   j1  epoch 2  cancelled             -> cancelled
events   j1                                 -> enqueued worker_claim started job_waiting cancel_requested wait_completed worker_claim started cancel_command

# Waiting: the grace period also runs while nobody has claimed it.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
wait     j1  epoch 1  signal paid           -> waiting
cancel   j1  grace 60s                      -> queued      cancel requested
pass     59s                                -> queued
pass     1s                                 -> cancelled

# Waiting: once it is awake and queued, only force takes it before its grace period is over.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
wait     j1  epoch 1  signal paid           -> waiting
cancel   j1                                 -> queued      cancel requested
cancel   j1                                 -> queued      recorded yes
cancel   j1  force                          -> cancelled

# Waiting: with force it is cancelled where it stands.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
wait     j1  epoch 1  signal paid           -> waiting
cancel   j1  force                          -> cancelled   waits_for none
signal   j1  paid                           -> refused INVALID_TRANSITION

# An end stays an end.
enqueue  j1                                 -> queued
run      j1  succeeded                      -> succeeded
cancel   j1                                 -> refused INVALID_TRANSITION
enqueue  j2                                 -> queued
run      j2  failed                         -> failed
cancel   j2  force                          -> refused INVALID_TRANSITION
enqueue  j3                                 -> queued
cancel   j3                                 -> cancelled   version 2
cancel   j3                                 -> refused INVALID_TRANSITION
enqueue  j4                                 -> queued
claim    j4  by w1  start                   -> running
settle   j4  partial  remaining {}          -> partial
cancel   j4                                 -> refused INVALID_TRANSITION

# A grace period has a limit.
enqueue  j1                                 -> queued
cancel   j1  grace 25h                      -> refused INVALID_INPUT  field grace_ms

# Asking twice is asking once, also when the job was woken to clean up and waits for a worker.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
wait     j1  signal paid                    -> waiting
cancel   j1  grace 60s                      -> queued      cancel requested
cancel   j1  grace 60s                      -> queued      recorded yes
claim    j1  by w2                          -> dispatched  cancel requested
cancel   j1  grace 60s                      -> dispatched  recorded yes
pass     60s                                -> cancelled

# Retries that are used up lead to the dead letters, whether or not someone asked to cancel.
enqueue  j1  retries 0                      -> queued
claim    j1  by w1  start                   -> running
cancel   j1                                 -> running     cancel requested
settle   j1  failed SMTP_BUSY               -> failed      dlq open  dlq_why retries_exhausted
