//! How nodes hear of each other's work, and what each does now and then.
//!
//! After commits that made jobs ready, a node tells the others: one notification for many commits,
//! in a transaction of its own, never inside a commit: `NOTIFY` takes a lock that would make
//! commits wait for each other. A node that hears it wakes its waiting workers. A notification may
//! be lost: so each node also polls, once a second.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use deadpool_postgres::ClientWrapper;
use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tokio_postgres::Config;

use super::{
    open::Options,
    partitions,
    pipeline::{Ask, run, run_one},
    pool::Connector,
    presence,
};
use crate::{
    Bell, ClockStanding, Error, Listener,
    postgres::{
        Inner, PgResult,
        row::{granted, inbox},
    },
};

/// Tells and hears that jobs may be ready.
pub(crate) struct Wake {
    ready: Bell,
    untold: Notify,
    look_around: Notify,
    /// Does any other node listen, as of the last look?
    has_others: AtomicBool,
    channel: String,
    config: Config,
    connector: Connector,
}

/// How long a row of the inbox waits at the most before it is noticed.
const POLL: Duration = Duration::from_millis(100);

/// Two notifications of one node are at least so far apart.
const PAUSE: Duration = Duration::from_millis(2);

/// How often those who wait are woken although nobody said anything, and other things are looked after.
const LOOK: Duration = Duration::from_secs(1);

/// How often what is no longer needed is cleared away.
const CLEAR: Duration = Duration::from_secs(60);

/// The most steps of it at a time: what is left then waits for the next. It is more than a node can add in between.
const CLEAR_STEPS_MAX: usize = 1_000;
/// Claims are forgotten in so many steps at the most, for others wait for what is done here.
const FORGET_STEPS_MAX: usize = 40;

impl Wake {
    pub(crate) fn new(options: &Options, connector: Connector) -> Self {
        Self {
            ready: Bell::default(),
            untold: Notify::new(),
            look_around: Notify::new(),
            has_others: AtomicBool::new(true),
            channel: format!("windlass_{}", options.schema),
            config: options.config.clone(),
            connector,
        }
    }

    pub(crate) fn listen(&self) -> Listener {
        self.ready.listen()
    }

    /// Jobs became ready here.
    pub(crate) fn tell(&self) {
        self.bump();
        if self.has_others.load(Ordering::Relaxed) {
            self.untold.notify_one();
        }
    }

    /// Something else has changed that has to be looked after.
    pub(crate) fn look_around(&self) {
        self.look_around.notify_one();
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    fn bump(&self) {
        self.ready.ring();
    }
}

/// Starts what a node does in the background, until its runtime ends.
pub(crate) fn start(inner: &Arc<Inner>) {
    let (listening, telling, looking) = (inner.clone(), inner.clone(), inner.clone());
    let attending = inner.clone();
    tokio::spawn(async move { presence::attend(&attending).await });
    tokio::spawn(async move { listen(&listening).await });
    tokio::spawn(async move { tell_others(&telling).await });
    tokio::spawn(async move { look_after(&looking).await });
}

/// Hears what other nodes tell. When its connection ends it makes another, and meanwhile others look.
async fn listen(inner: &Arc<Inner>) {
    loop {
        let hearing = inner.clone();
        let hear = move || {
            // Another node's jobs may lie below our floors, or in lines that are not in our cache:
            // both are dropped.
            hearing.forget_ready();
            hearing.wake.bump();
        };
        let wake = &inner.wake;
        if let Ok((client, task)) = wake.connector.alone(&wake.config, hear).await {
            let (class, id) = listeners_lock(inner.feed_lock);
            let listen = format!(
                "LISTEN \"{}\"; SELECT pg_advisory_lock_shared({class}, {id})",
                wake.channel
            );
            if client.batch_execute(&listen).await.is_ok() {
                let _ = Ended(task).await;
            }
        }
        sleep(LOOK).await;
    }
}

/// The task of a connection. Dropping this aborts the task, so it does not outlive the future that
/// awaits it.
pub(crate) struct Ended(pub(crate) JoinHandle<()>);

impl Future for Ended {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context).map(drop)
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A lost notification loses no job, so the statement does not wait for the disk.
const TELL: &str = "
    SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, '')";

async fn tell_others(inner: &Inner) {
    loop {
        inner.wake.untold.notified().await;
        let channel = inner.wake.channel.clone();
        let tell = async |client: &ClientWrapper| -> PgResult<()> {
            Ok(run(client, &[Ask::new(TELL).with(channel)]).await.map(drop)?)
        };
        // If it fails, the other nodes find the jobs by polling.
        let _: Result<(), Error> = inner.with_client(tell).await;
        sleep(PAUSE).await;
    }
}

/// What a node does now and then. What fails is tried again the next time.
async fn look_after(inner: &Inner) {
    let mut ticks = interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut looked, mut cleared) = (Instant::now(), Instant::now());
    let mut now = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = inner.wake.look_around.notified() => {
                let _ = inner.settle_in().await;
            }
        }
        if let Ok((is_used, time)) = inner.with_client(async |it| inbox::look(it).await).await {
            now = Some(inner.time.read(time, None));
            if is_used {
                let _ = inner.commit(&[]).await;
            }
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            inner.ready.hear();
            inner.wake.bump();
            inner.look_for_others().await;
            let lock = inner.feed_lock;
            let ahead = async |client: &ClientWrapper| -> PgResult<()> {
                Ok(partitions::look_ahead(client, lock).await?)
            };
            let _ = inner.with_client(ahead).await;
            // Groups whose numbers were given early and seen late.
            let _ = inner.with_client(async |client| inner.names.learn(client).await).await;
        }
        // What is old is told by the server's clock, which has to be right for that.
        let is_right = inner.time.standing() == ClockStanding::Agrees;
        if let Some(now) = now.filter(|_| cleared.elapsed() >= CLEAR && is_right) {
            cleared = Instant::now();
            let _ = inner.with_client(async |it| clear(it).await).await;
            let forget = async |it: &ClientWrapper| granted::forget(it, now).await;
            for _ in 0..FORGET_STEPS_MAX {
                match inner.with_client(forget).await {
                    Ok(granted::FORGET_MAX) => {}
                    Ok(_) | Err(_) => break,
                }
            }
        }
    }
}

/// Clears away what is no longer needed, in steps, so that none of them takes long.
async fn clear(client: &ClientWrapper) -> PgResult<()> {
    run(client, &[CLEAR_SESSIONS, CLEAR_LISTENS].map(Ask::new)).await?;
    for _ in 0..CLEAR_STEPS_MAX {
        let rows = run_one(client, Ask::new(CLEAR_COMMITS)).await?;
        if rows.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0))? < CLEAR_MAX {
            break;
        }
    }
    Ok(())
}

/// Each node that listens holds this advisory lock, shared: counting its holders tells whether
/// there are other nodes.
const LISTENERS: &str = "
    SELECT count(*) > 1 FROM pg_locks
    WHERE locktype = 'advisory' AND classid = $1::bigint::oid AND objid = $2::bigint::oid AND granted";

pub(crate) fn listeners_lock(feed_lock: (i32, i32)) -> (i32, i32) {
    (feed_lock.0 + 6, feed_lock.1)
}

impl Inner {
    /// Notes whether other nodes listen. A node that is alone sends no notifications.
    async fn look_for_others(&self) {
        let (class, id) = listeners_lock(self.feed_lock);
        let unsigned = |number: i32| i64::from(number.cast_unsigned());
        let look = async |client: &ClientWrapper| -> PgResult<bool> {
            let ask = Ask::new(LISTENERS).with(unsigned(class)).with(unsigned(id));
            Ok(run(client, &[ask]).await?[0][0].try_get(0)?)
        };
        if let Ok(has_others) = self.with_client(look).await {
            self.wake.has_others.store(has_others, Ordering::Relaxed);
        }
    }
}

/// A node asks about the id of a commit within seconds after its answer was lost, or never. What
/// another node clears away at the same time is left to it.
const CLEAR_COMMITS: &str = "
    WITH gone AS (
        DELETE FROM commits WHERE id IN (
            SELECT id FROM commits WHERE at < clock_timestamp() - interval '1 hour' LIMIT 10000
            FOR UPDATE SKIP LOCKED)
        RETURNING id)
    SELECT count(*) FROM gone";
/// How many commits one step of it clears away.
const CLEAR_MAX: i64 = 10_000;
/// What workers said that have been silent for long ([`Standing::REMEMBERED_FOR`](crate::read::Standing)). One that never
/// held a job is forgotten altogether: names cost a caller nothing, and there is no end of them.
const CLEAR_SESSIONS: &str = "
    DELETE FROM sessions WHERE id IN (
        SELECT id FROM sessions
        WHERE NOT vouched AND lapses_at = 'epoch' AND listened_at < clock_timestamp() - interval '10 minutes'
        LIMIT 10000 FOR UPDATE SKIP LOCKED)";
const CLEAR_LISTENS: &str = "
    UPDATE sessions SET listens = NULL WHERE id IN (
        SELECT id FROM sessions
        WHERE NOT vouched AND listens IS NOT NULL
            AND listened_at < clock_timestamp() - interval '10 minutes'
        LIMIT 10000 FOR UPDATE SKIP LOCKED)";
