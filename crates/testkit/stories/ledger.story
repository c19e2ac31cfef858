# What a ledger decides: each step runs as often as its mode allows, and what is on record counts.

# A step that was never begun is executed, and then it is on record.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running   epoch 1
begin    j1  charge once                             -> running   answer execute  steps 1  records 0
record   j1  charge once  result {"id":7}            -> running   answer done:1  steps 1  records 1
begin    j1  charge once                             -> running   answer recorded:1
settle   j1  succeeded                               -> succeeded
events   j1  -> enqueued worker_claim started tool_invocation_started tool_invocation_finished command_committed completed

# A step that may be run again needs no begin of its own.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
record   j1  mail idempotent  result null            -> running   answer done:1  steps 1
record   j1  price pure  result 12                   -> running   answer done:2  steps 2
events   j1  -> enqueued worker_claim started tool_invocation_started tool_invocation_finished command_committed tool_invocation_started tool_invocation_finished command_committed

# A step that runs at most once does.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
record   j1  charge once  result 1                   -> refused STEP_NOT_BEGUN

# Nothing at all is a result too: it is not run again.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
begin    j1  a once                                  -> running   answer execute
record   j1  a once  result null                     -> running   answer done:1
begin    j1  b once                                  -> running   answer execute
record   j1  b once  result false                    -> running   answer done:2
begin    j1  c once                                  -> running   answer execute
record   j1  c once  result []                       -> running   answer done:3
begin    j1  a once                                  -> running   answer recorded:1
begin    j1  b once                                  -> running   answer recorded:2
begin    j1  c once                                  -> running   answer recorded:3

# The first outcome counts; the same again is answered from the record, another one is refused.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
record   j1  mail idempotent  result 1               -> running   answer done:1
record   j1  mail idempotent  result 1               -> running   answer recorded:1  records 1
record   j1  mail idempotent  result 2               -> refused STEP_RECORDED
record   j1  mail idempotent  failed DECLINED        -> refused STEP_RECORDED

# Another call of the same attempt waits for the one that runs the step.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
begin    j1  charge once  call 1                     -> running   answer execute
begin    j1  charge once  call 2                     -> running   answer wait
begin    j1  charge once  call 1                     -> running   answer execute

# The worker dies between begin and record: behind the barrier the step is never run blindly.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running   epoch 1
begin    j1  charge once                             -> running   answer execute
die      w1                                          -> interrupted
claim    j1  by w2  start                            -> running   epoch 2
begin    j1  charge once                             -> running   answer barrier
record   j1  charge once  result 1                   -> refused BARRIER
record   j1  charge once  result 1  as reconciled    -> running   answer done:1
begin    j1  charge once                             -> running   answer recorded:1

# A step that is known not to have happened may run again, and its tries are counted.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
begin    j1  charge once                             -> running   answer execute
try_failed j1  charge once  NOT_SENT                 -> running   answer noted
die      w1                                          -> interrupted
claim    j1  by w2  start                            -> running
begin    j1  charge once                             -> running   answer execute
record   j1  charge once  result 1                   -> running   answer done:1

# An idempotent step is run again by the next worker.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
begin    j1  mail idempotent                         -> running   answer execute
die      w1                                          -> interrupted
claim    j1  by w2  start                            -> running
begin    j1  mail idempotent                         -> running   answer execute
record   j1  mail idempotent  result 1               -> running   answer done:1

# A worker that lost its lease writes nothing, but what it did is kept as a fact.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running     epoch 1
begin    j1  charge once                             -> running     answer execute
pass     31s                                         -> interrupted
claim    j1  by w2  start                            -> running     epoch 2
record   j1  epoch 1  charge once  result 1          -> refused STALE_ATTEMPT
hand_in  j1  epoch 1  charge 1                       -> running     records 0
hand_in  j1  epoch 1  charge 1                       -> running     recorded yes
hand_in  j1  epoch 1  charge 2                       -> refused STEP_RECORDED
record   j1  charge once  result 1  as late_effect   -> running     answer done:1
hand_in  j1  epoch 1  charge 1                       -> running     recorded yes
hand_in  j1  epoch 1  charge 2                       -> refused STEP_RECORDED

# Only the epoch that began the step can hand anything in.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running     epoch 1
begin    j1  charge once                             -> running
die      w1                                          -> interrupted
claim    j1  by w2  start                            -> running     epoch 2
hand_in  j1  epoch 2  charge 1                       -> refused STALE_ATTEMPT
hand_in  j1  epoch 1  nothing 1                      -> refused NOT_FOUND

# The code asks for something else than what is on record.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
record   j1  mail idempotent  result 1  input {"to":"bob"}  -> running
begin    j1  mail idempotent  input {"to":"eve"}     -> refused NONDETERMINISTIC
begin    j1  mail once  input {"to":"bob"}           -> refused NONDETERMINISTIC
begin    j1  mail idempotent  input { "to": "bob" }  -> running   answer recorded:1

# A retry keeps what succeeded, tries again what failed, and what is unknown stays so.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running   attempt 1
record   j1  price pure  result 12                   -> running   answer done:1
record   j1  mail idempotent  failed BOUNCED         -> running   answer done:2
begin    j1  charge once                             -> running   answer execute
settle   j1  failed BUSY                             -> retry_scheduled
pass     2s
claim    j1  by w1  start                            -> running   attempt 2
begin    j1  price pure                              -> running   answer recorded:1
begin    j1  mail idempotent                         -> running   answer execute
record   j1  mail idempotent  result 1               -> running   answer done:3
begin    j1  charge once                             -> running   answer barrier

# Progress clears the count of interruptions.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
die      w1                                          -> interrupted  interruptions 1
claim    j1  by w2  start                            -> running
record   j1  price pure  result 12                   -> running      interruptions 0

# Without a lease nobody advances a ledger.
enqueue  j1                                          -> queued
begin    j1  epoch 0  charge once                    -> refused STALE_ATTEMPT
claim    j1  by w1                                   -> dispatched
begin    j1  charge once                             -> refused INVALID_TRANSITION
start    j1                                          -> running
settle   j1  succeeded                               -> succeeded
begin    j1  epoch 1  charge once                    -> refused INVALID_TRANSITION

# A signal that comes early is kept, and the wait for it is over at once.
enqueue  j1                                          -> queued
signal   j1  paid  payload {"by":"card"}             -> queued    delivered no  mails 1
claim    j1  by w1  start                            -> running   mails 1
wait     j1  signal paid  seen 0                     -> queued    woken signal
events   j1  -> enqueued signal_received worker_claim started job_waiting wait_completed

# A signal that comes while the job waits wakes it; the same again changes nothing, in every later state.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
wait     j1  signal paid  seen 0                     -> waiting
signal   j1  paid  payload 1                         -> queued    delivered yes
signal   j1  paid  payload 1                         -> queued    recorded yes
claim    j1  by w1  start                            -> running
signal   j1  paid  payload 1                         -> running   recorded yes
signal   j1  paid  payload 2                         -> refused SIGNAL_CONFLICT
signal   j1  paid  reject NO                         -> refused SIGNAL_CONFLICT
settle   j1  succeeded                               -> succeeded
signal   j1  paid  payload 1                         -> succeeded  recorded yes
signal   j1  paid  payload 2                         -> refused SIGNAL_CONFLICT
signal   j1  other                                   -> refused INVALID_TRANSITION

# Messages of a channel come as often as they like, each once.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
message  j1  chat m1  payload 1                      -> running   mails 1
message  j1  chat m2  payload 1                      -> running   mails 2
message  j1  chat m1  payload 1                      -> running   recorded yes
message  j1  chat m1  payload 2                      -> refused SIGNAL_CONFLICT
wait     j1  message chat  seen 2                    -> waiting   waits_for "message chat"
message  j1  other m1  payload 1                     -> waiting   delivered no
message  j1  chat m3  payload 1                      -> queued    delivered yes  woken message

# A job that waits for a person goes on with what the person states.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
begin    j1  charge once                             -> running
die      w1                                          -> interrupted
claim    j1  by w2  start                            -> running
wait     j1  operator EFFECT_UNKNOWN step charge     -> waiting
resolve  j1  step charge  result 7                   -> refused INVALID_INPUT  field reason
resolve  j1  step mail  result 7  because the bank says so    -> refused INVALID_INPUT  field step
resolve  j1  because it is over                      -> refused INVALID_INPUT  field step
resolve  j1  step charge  result 7  because the bank says so  -> queued    records 1  woken operator
claim    j1  by w2  start                            -> running
begin    j1  charge once                             -> running   answer recorded:1
events   j1  -> enqueued worker_claim started tool_invocation_started process_restart recovery_resume started job_waiting tool_invocation_finished command_committed step_resolved wait_completed worker_claim started

# Or runs it again, if the person states that nothing happened.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
begin    j1  charge once                             -> running
die      w1                                          -> interrupted
claim    j1  by w2  start                            -> running
wait     j1  operator EFFECT_UNKNOWN step charge     -> waiting
resolve  j1  step charge  because the bank knows nothing of it  -> queued
claim    j1  by w2  start                            -> running
begin    j1  charge once                             -> running   answer execute

# A job that only has to go on does.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
wait     j1  operator NONDETERMINISTIC               -> waiting   waits_for "operator NONDETERMINISTIC"
signal   j1  paid                                    -> waiting   delivered no
resolve  j1  because the old code is back            -> queued    woken operator
resolve  j1  because twice                           -> refused INVALID_TRANSITION

# A checkpoint that keeps its state is a record of the ledger.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
record   j1  price pure  result 12                   -> running   records 1
checkpoint j1  {"at":3}                              -> running   records 2  steps 2
record   j1  price#2 pure  result 13                 -> running   answer done:3

# The end of a child is kept for a parent with a ledger, and ends its wait for any of several things.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
record   j1  price pure  result 12                   -> running
enqueue  j2  parent j1                               -> queued
run      j2  succeeded                               -> succeeded
signal   j1  child j2                                -> running   mails 1  delivered no
signal   j1  child j2                                -> running   recorded yes
wait     j1  child j2  seen 0                        -> queued    woken child

# A parent without one hears of it while it waits, and not before.
enqueue  j1                                          -> queued
claim    j1  by w1  start                            -> running
enqueue  j2  parent j1                               -> queued
signal   j1  child j2                                -> refused NOT_WAITING_FOR
wait     j1  child j2                                -> waiting
signal   j1  child j2                                -> queued    woken child  mails 0
