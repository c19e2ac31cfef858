//! `windlass top`: queues, workers, rates and alerts, as they are now and a second later.
//!
//! Always true here: one call for each picture, and none while it is paused. What a picture costs the server is bounded
//! there. The terminal is as it was when it ends.

mod picture;
mod rates;
mod screen;

use std::{
    io::IsTerminal as _,
    pin::{Pin, pin},
    time::Duration,
};

use clap::Args;
use tokio::time::{Instant, sleep, sleep_until};

use self::{picture::Overview, rates::Rates, screen::Screen};
use crate::cli::{
    Output,
    api::{Api, ApiArgs, Document},
    look::{json, keys::Keys, terminal::print, times, view::View},
    serving::signalled,
    trouble::Trouble,
};

/// Watch queues, workers, rates and alerts.
///
/// Keys: q quits, p pauses and goes on. On a pipe it prints one picture, as --once does; -o json prints the document
/// once, and -o jsonl again and again.
#[derive(Args)]
pub(crate) struct Top {
    /// Print one picture as text, and end.
    #[arg(long)]
    once: bool,
    /// How often to look.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = at_least)]
    every: Duration,
    #[command(flatten)]
    api: ApiArgs,
}

/// Who looks more often sees no more.
fn at_least(text: &str) -> Result<Duration, String> {
    times::parse(text).map(|every| every.max(Duration::from_millis(200)))
}

const PATH: &str = "/api/v1/overview";

pub(crate) async fn run(command: &Top, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let is_once = command.once || !std::io::stdout().is_terminal();
    let shown = match view.output {
        Output::Json => {
            let document = api.get(PATH).await?;
            print(&(json::laid_out(document.text()) + "\n"));
            Ok(())
        }
        Output::Jsonl if command.once => {
            print(&(api.get(PATH).await?.text().to_owned() + "\n"));
            Ok(())
        }
        Output::Table if is_once => once(&api, view).await,
        Output::Table | Output::Jsonl if api.is_alone() => {
            Err(Trouble::not_found("nobody serves this database, so nothing would move")
                .then("One picture of it: windlass top --once")
                .then("Serve it in another terminal: windlass dev"))
        }
        Output::Jsonl => again_and_again(&api, command.every).await,
        Output::Table => live(&api, command.every, view).await,
    };
    api.close().await;
    shown
}

/// One picture. Rates need two looks.
async fn once(api: &Api, view: &View) -> Result<(), Trouble> {
    let mut rates = Rates::default();
    let mut overview: Overview = api.get(PATH).await?.read()?;
    rates.see(&overview);
    if overview.totals.is_some() {
        sleep(Duration::from_secs(1)).await;
        overview = api.get(PATH).await?.read()?;
        rates.see(&overview);
    }
    print(&picture::draw(&overview, &rates, view));
    Ok(())
}

/// A document a line, until somebody stops it.
async fn again_and_again(api: &Api, every: Duration) -> Result<(), Trouble> {
    let stop = signalled();
    tokio::pin!(stop);
    loop {
        let next = Instant::now() + every;
        print(&(api.get(PATH).await?.text().to_owned() + "\n"));
        tokio::select! {
            () = &mut stop => return Ok(()),
            () = sleep_until(next) => {}
        }
    }
}

/// What is on the screen now.
struct Live {
    rates: Rates,
    last: Option<Overview>,
    trouble: Option<String>,
    is_paused: bool,
}

impl Live {
    fn see(&mut self, asked: Result<Document, Trouble>) {
        match asked.and_then(|document| document.read::<Overview>()) {
            Ok(overview) => {
                self.rates.see(&overview);
                (self.last, self.trouble) = (Some(overview), None);
            }
            Err(trouble) => self.trouble = Some(trouble.what().to_owned()),
        }
    }

    fn draw(&self, screen: &Screen, api: &Api, view: &View) {
        let view = view.renewed();
        let state = match (&self.trouble, self.is_paused) {
            (Some(trouble), _) => Some(trouble.as_str()),
            (None, true) => Some("paused"),
            (None, false) => None,
        };
        let mut text = picture::title(api.place(), state, &view);
        if let Some(overview) = &self.last {
            text.push_str(&picture::draw(overview, &self.rates, &view));
        }
        screen.show(&text);
    }
}

/// Draws again and again, until somebody has seen enough. A server that is away is waited for.
async fn live(api: &Api, every: Duration, view: &View) -> Result<(), Trouble> {
    let mut live = Live { rates: Rates::default(), last: None, trouble: None, is_paused: false };
    let first = api.get(PATH).await?;
    let (mut keys, screen) = (Keys::open(), Screen::open());
    live.see(Ok(first));
    let stop = signalled();
    tokio::pin!(stop);
    let mut next = Instant::now() + every;
    // A call may hang for long: keys are obeyed meanwhile.
    let mut asked = pin!(None);
    loop {
        live.draw(&screen, api, view);
        tokio::select! {
            () = &mut stop => return Ok(()),
            key = keys.next() => match key {
                b'q' | b'Q' => return Ok(()),
                b'p' | b'P' | b' ' => live.is_paused = !live.is_paused,
                _ => {}
            },
            document = answer(asked.as_mut()), if asked.is_some() => {
                asked.set(None);
                if !live.is_paused {
                    live.see(document);
                }
            }
            () = sleep_until(next), if asked.is_none() => {
                next = Instant::now() + every;
                if !live.is_paused {
                    asked.set(Some(api.get(PATH)));
                }
            }
        }
    }
}

/// The answer to a call that is under way.
async fn answer<F: Future>(call: Pin<&mut Option<F>>) -> F::Output {
    call.as_pin_mut().expect("it is under way").await
}
