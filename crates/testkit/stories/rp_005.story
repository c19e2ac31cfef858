# RP-005. A job that is at its end stays there: another end is refused, and nothing changes.

# A job that succeeded is not run again, whatever the outcome would be.
enqueue  j1  trace rp-005                   -> queued
run      j1  succeeded                      -> succeeded   version 4
run      j1  succeeded                      -> refused INVALID_TRANSITION  in_jobs WF_STATE_TRANSITION_INVALID
run      j1  failed                         -> refused INVALID_TRANSITION  in_jobs WF_STATE_TRANSITION_INVALID
run      j1  transient                      -> refused INVALID_TRANSITION  in_jobs WF_STATE_TRANSITION_INVALID
expect   j1                                 -> succeeded   version 4  retry_count 0  trace rp-005
replay   j1                                 -> queued running succeeded

# A job that failed does not succeed afterwards.
enqueue  j1  trace rp-005                   -> queued
run      j1  failed                         -> failed      dlq open
run      j1  succeeded                      -> refused INVALID_TRANSITION
expect   j1                                 -> failed      dlq open
replay   j1                                 -> queued running dlq_pending dlq_recorded failed

# The same settle again gets the recorded answer. A different one of the lease that ended the job is an illegal move;
# of any other epoch it comes too late.
enqueue  j1  trace rp-005                   -> queued
claim    j1  by w1  start                   -> running     epoch 1
settle   j1  epoch 1  succeeded             -> succeeded   recorded no   version 4
settle   j1  epoch 1  succeeded             -> succeeded   recorded yes  version 4
settle   j1  epoch 1  failed TOO_LATE       -> refused INVALID_TRANSITION  in_jobs WF_STATE_TRANSITION_INVALID
settle   j1  epoch 1  cancelled             -> refused INVALID_TRANSITION  in_jobs WF_STATE_TRANSITION_INVALID
settle   j1  epoch 2  succeeded             -> refused STALE_ATTEMPT
expect   j1                                 -> succeeded   version 4
replay   j1                                 -> queued running succeeded

# A worker that lost its lease is told so, whatever became of the job.
enqueue  j1  trace rp-005                   -> queued
claim    j1  by w1  start                   -> running     epoch 1
die      w1                                 -> interrupted
claim    j1  by w2  start                   -> running     epoch 2
settle   j1  epoch 2  succeeded             -> succeeded
settle   j1  epoch 1  failed TOO_LATE       -> refused STALE_ATTEMPT
settle   j1  epoch 1  succeeded             -> refused STALE_ATTEMPT
settle   j1  epoch 2  failed TOO_LATE       -> refused INVALID_TRANSITION  in_jobs WF_STATE_TRANSITION_INVALID
replay   j1                                 -> queued running succeeded

# No op leads out of an end. A renewal that crosses the settle is no illegal move.
enqueue  j1  trace rp-005                   -> queued
run      j1  succeeded                      -> succeeded   version 4
claim    j1  by w2                          -> refused INVALID_TRANSITION
cancel   j1                                 -> refused INVALID_TRANSITION
cancel   j1  force                          -> refused INVALID_TRANSITION
retry_now j1                                -> refused INVALID_TRANSITION
bury     j1  because it is enough           -> refused INVALID_TRANSITION
signal   j1  paid                           -> refused INVALID_TRANSITION
rerun    j1  as j2                          -> refused INVALID_TRANSITION
start    j1  epoch 1                        -> refused INVALID_TRANSITION
renew    j1  epoch 1                        -> refused STALE_ATTEMPT
release  j1  epoch 1                        -> refused INVALID_TRANSITION
wait     j1  epoch 1  time 10s              -> refused INVALID_TRANSITION
checkpoint j1  epoch 1  {"done": 3}         -> refused INVALID_TRANSITION
pass     366d                               -> succeeded   version 4
replay   j1                                 -> queued running succeeded
