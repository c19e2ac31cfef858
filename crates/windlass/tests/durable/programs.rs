//! Random programs: whatever a handler does, a worker that dies again and again changes neither its result nor what was done
//! outside more often than its mode allows.
//!
//! A program is data: steps of all modes, joins, races, sleeps, signals, messages, children and failures. It is run by one
//! interpreter, once undisturbed and once with workers that are killed at random moments. The same seed does the same.

use std::{future::Future, pin::Pin, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass::{
    BoxError, Engine, HandlerResult, JobId, State, Work, Worker,
    durable::{Ctx, NotDone, Reconciled, StepError, StepRetry},
    job, testing,
};
use windlass_kernel::{
    Payload,
    ids::{Channel, MessageId},
    ledger::{MailContent, MailName},
};

use super::common::{Outside, deliver, send};

/// One command of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Do {
    Pure(u32),
    Idempotent(u32),
    Once(u32),
    /// Fails so many times before it works.
    Flaky(u32),
    /// A `once` step that is known not to have happened so many times.
    Refused(u32),
    Sleep(u32),
    Signal(u32),
    Receive,
    Child(Vec<Do>),
    Join(Vec<Do>),
    /// Both are begun; the one that is first in the record wins.
    Race(Box<Do>, Box<Do>),
    /// The whole attempt fails, so many times.
    FailAttempt(u32),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Program {
    seed: u64,
    run: u32,
    commands: Vec<Do>,
}

impl Work for Program {
    const KIND: &str = "program";
}

/// Chance from a seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u32 {
        u32::try_from(self.next() % bound).unwrap()
    }
}

fn program(chance: &mut Chance, depth: u32) -> Vec<Do> {
    (0..=chance.below(5)).map(|_| command(chance, depth)).collect()
}

fn command(chance: &mut Chance, depth: u32) -> Do {
    let number = chance.below(1000);
    match chance.below(if depth == 0 { 9 } else { 13 }) {
        0 => Do::Pure(number),
        1 => Do::Idempotent(number),
        2 | 3 => Do::Once(number),
        4 => Do::Flaky(number % 3),
        5 => Do::Refused(number % 3),
        6 => Do::Sleep(number % 20),
        7 => Do::Signal(number % 3),
        8 => Do::Receive,
        9 => Do::Child(program(chance, depth - 1)),
        10 => Do::Join((0..=chance.below(3)).map(|_| command(chance, depth - 1)).collect()),
        11 => Do::Race(Box::new(command(chance, 0)), Box::new(command(chance, 0))),
        _ => Do::FailAttempt(number % 2),
    }
}

type Doing<'a> = Pin<Box<dyn Future<Output = Result<Value, StepError>> + Send + 'a>>;

/// How long an effect takes, so that there are moments in which to kill its worker.
const EFFECT: Duration = Duration::from_millis(40);

fn perform<'a>(
    ctx: &'a Ctx,
    program: &'a Program,
    outside: &'a Outside,
    what: &'a Do,
) -> Doing<'a> {
    let name = format!("{}", ctx.job_id());
    Box::pin(async move {
        let effect = |sort: &'static str, number: u32| {
            let (outside, name) = (outside.clone(), name.clone());
            move |fx: windlass::durable::Fx| {
                let (outside, name) = (outside.clone(), name.clone());
                async move {
                    tokio::time::sleep(EFFECT / 2).await;
                    outside.note(&format!("{sort} {name} {}", fx.key()));
                    tokio::time::sleep(EFFECT / 2).await;
                    Ok::<u32, BoxError>(number)
                }
            }
        };
        Ok(match what {
            Do::Pure(number) => json!(ctx.step("pure", effect("pure", *number)).pure().await?),
            Do::Idempotent(number) => {
                json!(ctx.step("idempotent", effect("idempotent", *number)).idempotent().await?)
            }
            Do::Once(number) => {
                let (seen, name, number) = (outside.clone(), name.clone(), *number);
                let ask = move |fx: windlass::durable::Fx| {
                    let done = seen.count(&format!("once {name} {}", fx.key())) > 0;
                    async move {
                        let answer =
                            if done { Reconciled::Happened(number) } else { Reconciled::NotDone };
                        Ok::<_, BoxError>(answer)
                    }
                };
                json!(ctx.step("once", effect("once", number)).once().reconcile(ask).await?)
            }
            Do::Flaky(times) => {
                let (outside, name) = (outside.clone(), name.clone());
                let step = ctx.step("flaky", move |fx: windlass::durable::Fx| {
                    let (outside, name, times) = (outside.clone(), name.clone(), *times);
                    async move {
                        tokio::time::sleep(EFFECT).await;
                        outside.note(&format!("flaky {name} {}", fx.key()));
                        if fx.try_number() <= times { Err("busy") } else { Ok(times) }
                    }
                });
                let retry = StepRetry::times(4).backoff(Duration::from_secs(1));
                json!(step.idempotent().retry(retry).await?)
            }
            Do::Refused(times) => {
                let times = *times;
                let step = ctx.step("refused", move |fx: windlass::durable::Fx| async move {
                    if fx.try_number() <= times {
                        return Err::<u32, BoxError>(NotDone::because("not sent").into());
                    }
                    Ok(times)
                });
                let retry = StepRetry::times(4).backoff(Duration::from_millis(100));
                // What it is asked about never happened, for it takes no time.
                let ask = |_| async { Ok::<_, BoxError>(Reconciled::NotDone) };
                json!(step.once().retry(retry).reconcile(ask).await?)
            }
            Do::Sleep(seconds) => {
                ctx.sleep(Duration::from_secs(u64::from(*seconds))).await?;
                json!("slept")
            }
            Do::Signal(number) => ctx.signal::<Value>(&format!("s{number}")).await?,
            Do::Receive => ctx.recv::<Value>("mail").await?,
            Do::Child(commands) => {
                let child = Program { commands: commands.clone(), ..program.clone() };
                ctx.child::<Value>(job(child).max_retries(10)).await?
            }
            Do::Join(all) => {
                let all = all.iter().map(|each| perform(ctx, program, outside, each));
                let mut results = Vec::new();
                for each in join_all(all.collect()).await {
                    results.push(each?);
                }
                json!(results)
            }
            Do::Race(one, other) => {
                tokio::select! {
                    biased;
                    it = perform(ctx, program, outside, one) => json!([0, it?]),
                    it = perform(ctx, program, outside, other) => json!([1, it?]),
                }
            }
            Do::FailAttempt(_) => json!("gone on"),
        })
    })
}

/// Polls all until all are ready.
async fn join_all(mut all: Vec<Doing<'_>>) -> Vec<Result<Value, StepError>> {
    let mut results: Vec<Option<_>> = all.iter().map(|_| None).collect();
    std::future::poll_fn(move |task| {
        for (doing, result) in all.iter_mut().zip(&mut results) {
            if result.is_none()
                && let std::task::Poll::Ready(ready) = doing.as_mut().poll(task)
            {
                *result = Some(ready);
            }
        }
        match results.iter().all(Option::is_some) {
            true => {
                std::task::Poll::Ready(results.iter_mut().map(|it| it.take().unwrap()).collect())
            }
            false => std::task::Poll::Pending,
        }
    })
    .await
}

async fn interpret(ctx: &Ctx, program: Program, outside: Outside) -> HandlerResult<Value> {
    let mut results = Vec::new();
    for (place, command) in program.commands.iter().enumerate() {
        if let Do::FailAttempt(times) = command {
            let failed = outside.note(&format!("fail {} {place} {}", ctx.job_id(), program.run));
            if failed <= *times {
                return Err("this attempt fails".into());
            }
        }
        results.push(perform(ctx, &program, &outside, command).await?);
    }
    Ok(json!(results))
}

/// A worker of the interpreter.
async fn worker(engine: &Engine, outside: &Outside) -> HandlerResult<Worker> {
    let outside = outside.clone();
    let run = super::common::programs(move |ctx, program: Program| {
        let outside = outside.clone();
        Box::pin(async move { interpret(ctx, program, outside).await })
    });
    let worker = engine.worker().durable(run).lease(Duration::from_secs(2)).concurrency(8);
    Ok(worker.start().await?)
}

/// Sends everything that a program and its children may wait for.
async fn send_all(engine: &Engine, id: JobId) {
    for number in 0..3 {
        send(engine, id, &format!("s{number}"), &number.to_string()).await;
    }
    for number in 0..30 {
        let channel = Channel::new("mail").unwrap();
        let name = MailName::Message { channel, id: MessageId::new(format!("m{number}")).unwrap() };
        let content = MailContent::Payload(Payload::parse(&number.to_string(), 10).unwrap());
        deliver(engine, id, name, content).await;
    }
}

/// Runs a program, with workers that die when chance wants it. Gives its result and what was done outside.
async fn run(seed: u64, dies: bool) -> HandlerResult<(Value, Outside)> {
    let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let commands = program(&mut chance, 2);
    let (engine, outside) = (testing::engine()?, Outside::default());
    let new = job(Program { seed, run: 0, commands }).max_retries(10).max_interruptions(1000);
    let id = engine.enqueue(new).await?.id;
    send_all(&engine, id).await;
    let mut signalled = vec![id];
    let mut working = worker(&engine, &outside).await?;
    let mut rounds = 0;
    loop {
        let pause = Duration::from_millis(u64::from(chance.below(300)) + 1);
        let ended = tokio::time::timeout(pause, engine.wait(id)).await;
        for job in engine.own_store()?.open_jobs().await? {
            if !signalled.contains(&job.id) {
                signalled.push(job.id);
                send_all(&engine, job.id).await;
            }
        }
        if let Ok(ended) = ended {
            let ended = ended?;
            assert_eq!(ended.job.state, State::Succeeded, "seed {seed}: {:?}", ended.job.error);
            working.shutdown().await?;
            return Ok((ended.result::<Value>()?, outside));
        }
        rounds += 1;
        assert!(rounds < 5_000, "seed {seed} does not come to its end");
        if dies && rounds < 200 && chance.below(3) == 0 {
            working.kill();
            working = worker(&engine, &outside).await?;
        }
    }
}

/// Effects that must not be repeated were not, however often their workers died.
fn check_outside(outside: &Outside, seed: u64) {
    for (what, count) in outside.all() {
        if what.starts_with("once ") {
            assert_eq!(count, 1, "seed {seed}: {what}");
        }
    }
}

/// Races are decided by time, and a crash changes the time.
fn without_races(commands: &[Do]) -> bool {
    commands.iter().all(|command| match command {
        Do::Race(..) => false,
        Do::Child(commands) | Do::Join(commands) => without_races(commands),
        _ => true,
    })
}

fn check(seed: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let (calm, outside) = run(seed, false).await.unwrap();
        check_outside(&outside, seed);
        let (stormy, outside) = run(seed, true).await.unwrap();
        check_outside(&outside, seed);
        let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let commands = program(&mut chance, 2);
        // Messages of children that run side by side are taken in whichever order they ask.
        if without_races(&commands) {
            assert_eq!(calm, stormy, "seed {seed}");
        }
    });
}

#[test]
fn random_programs_survive_workers_that_die() {
    let first = std::env::var("WINDLASS_SEED").ok().and_then(|seed| seed.parse().ok());
    let count = std::env::var("WINDLASS_PROGRAMS").ok().and_then(|count| count.parse().ok());
    match first {
        Some(seed) => check(seed),
        None => (1..=count.unwrap_or(300)).for_each(check),
    }
}
