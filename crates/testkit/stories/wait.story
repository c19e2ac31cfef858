# Waits: a job that waits holds no lease, is never reclaimed, and wakes for one of a few reasons.

# A signal ends the wait, and the job goes on with the same attempt under a new epoch.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running     epoch 1
wait     j1  epoch 1  signal paid           -> waiting     waits_for "signal paid"  owner none  wait_in none  woken none
event    j1  {"cause": "job_waiting", "from": "running", "to": "waiting", "actor": "worker:w1"}
signal   j1  paid                           -> queued      waits_for none  woken signal
event    j1  {"cause": "wait_completed", "from": "waiting", "to": "queued"}
claim    j1  by w2  start                   -> running     epoch 2  attempt 1  woken signal
settle   j1  epoch 2  succeeded             -> succeeded   retry_count 0  interruptions 0
events   j1                                 -> enqueued worker_claim started job_waiting signal_received wait_completed worker_claim started completed

# A signal with another key does not end the wait, nor does a child.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
wait     j1  signal paid                    -> waiting     version 4
signal   j1  shipped                        -> waiting     delivered no  mails 1
signal   j1  lost  expect_waiting           -> refused NOT_WAITING_FOR
wake     j1  child j2                       -> refused NOT_WAITING_FOR
expect   j1                                 -> waiting     version 5
signal   j1  paid                           -> queued

# A time ends the wait when it comes, not before.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
wait     j1  time 10m                       -> waiting     wait_in 10m  waits_for time
signal   j1  paid                           -> waiting     wait_in 10m  delivered no
pass     599s                               -> waiting
pass     1s                                 -> queued      woken time
event    j1  {"cause": "wait_completed", "from": "waiting", "to": "queued", "actor": "scheduler"}

# The end of a child ends the wait for it.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
enqueue  j2  parent j1                      -> queued
enqueue  j3  parent j1                      -> queued
wait     j1  child j2                       -> waiting
run      j2  succeeded                      -> succeeded
wake     j1  child j3                       -> refused NOT_WAITING_FOR
wake     j1  child j2                       -> queued      woken child
wake     j1  child j2                       -> refused INVALID_TRANSITION

# A wait that may not last for ever times out, and the handler sees that.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
wait     j1  signal paid  for 30s           -> waiting     wait_in 30s
pass     29s                                -> waiting
pass     1s                                 -> queued      woken timed_out
signal   j1  paid                           -> queued      delivered no
claim    j1  by w2  start                   -> running     woken timed_out  attempt 1  retry_count 0
settle   j1  epoch 2  succeeded             -> succeeded

# A wait for a child can time out as well.
enqueue  j1                                 -> queued
enqueue  j2  parent j1                      -> queued
claim    j1  by w1  start                   -> running
wait     j1  child j2  for 30s              -> waiting
pass     30s                                -> j1 queued woken timed_out  j2 queued

# A signal that comes in time makes the time-out void.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
wait     j1  signal paid  for 30s           -> waiting
pass     29s                                -> waiting
signal   j1  paid                           -> queued      woken signal
pass     1h                                 -> queued      woken signal

# A cancel wakes it.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
wait     j1  signal paid                    -> waiting
cancel   j1                                 -> queued      woken cancelled  cancel requested
signal   j1  paid                           -> queued      delivered no

# Nobody can claim, renew or settle a waiting job, and no lease runs out.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running     epoch 1
wait     j1  epoch 1  signal paid           -> waiting     lease_in none  lease_count 1
claim    j1  by w2                          -> refused INVALID_TRANSITION
renew    j1  epoch 1                        -> refused STALE_ATTEMPT
release  j1  epoch 1                        -> refused STALE_ATTEMPT
settle   j1  epoch 1  succeeded             -> refused STALE_ATTEMPT
wait     j1  epoch 1  signal paid           -> refused STALE_ATTEMPT
die      w1                                 -> waiting     interruptions 0
pass     366d                               -> waiting     interruptions 0  version 4
signal   j1  paid                           -> queued

# Only a job that runs can begin to wait, and only one that waits can wake.
enqueue  j1                                 -> queued
wait     j1  epoch 0  signal paid           -> refused STALE_ATTEMPT
wake     j1  child j2                       -> refused INVALID_TRANSITION
claim    j1  by w1                          -> dispatched
wait     j1  epoch 1  signal paid           -> refused INVALID_TRANSITION
start    j1  epoch 1                        -> running
wake     j1  child j2                       -> refused INVALID_TRANSITION

# A job can wait many times; each wait forgets how the last one ended.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
wait     j1  time 1s                        -> waiting     woken none
pass     1s                                 -> queued      woken time
claim    j1  by w1  start                   -> running     epoch 2
wait     j1  signal paid  for 1s            -> waiting     woken none
pass     1s                                 -> queued      woken timed_out
claim    j1  by w1  start                   -> running     epoch 3
settle   j1  epoch 3  succeeded             -> succeeded   attempts 1  attempt_state SUCCEEDED

# A waiting job woke and was lost before it started: it is still awake.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
wait     j1  signal paid                    -> waiting
signal   j1  paid                           -> queued
claim    j1  by w2                          -> dispatched
die      w2                                 -> queued      woken signal  interruptions 0

# A child that has ended before anyone waited for it ends the wait at once.
enqueue  j1                                 -> queued
claim    j1  by w1  start                   -> running
enqueue  j2  parent j1                      -> queued
run      j2  succeeded                      -> succeeded
wait     j1  child j2                       -> queued      woken child
events   j1                                 -> enqueued worker_claim started job_waiting wait_completed

# Only a child of its own can be waited for: nothing else would ever wake the job.
enqueue  j1                                 -> queued
enqueue  j2                                 -> queued
claim    j1  by w1  start                   -> running
wait     j1  child j2                       -> refused INVALID_INPUT  field child
wait     j1  child j3                       -> refused NOT_FOUND
expect   j1                                 -> running

# A child needs a parent that is there and still wants it.
enqueue  j2  parent j1                      -> refused NOT_FOUND
enqueue  j1                                 -> queued
enqueue  j2  parent j1  tenant other        -> refused NOT_FOUND
claim    j1  by w1  start                   -> running
cancel   j1                                 -> running     cancel requested
enqueue  j2  parent j1                      -> refused CANCEL_REQUESTED
settle   j1  cancelled                      -> cancelled
enqueue  j2  parent j1                      -> refused INVALID_INPUT  field parent
