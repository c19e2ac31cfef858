//! Attempts as bars on one axis of time.
//!
//! Always true here: what ran is at least one character wide, if there is room at all, and long times in which nothing
//! ran do not take the room of what ran. Where time is left out, the bar is marked.

use std::{collections::BTreeMap, time::Duration};

use anstyle::{AnsiColor, Style};
use windlass::wire::AttemptDocument;
use windlass_kernel::{State, Timestamp};

use super::super::seen::Event;
use crate::cli::look::view::DIM;

/// What a job did for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Waits,
    Runs,
    Parked,
    /// Its events were not looked at.
    Unknown,
}

/// A while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    what: What,
    from: Timestamp,
    to: Timestamp,
}

/// The bars, and what has to be said of them.
pub(super) struct Bars {
    /// A bar for each attempt, all of the same width.
    pub(super) bars: Vec<String>,
    /// What the signs in them mean.
    pub(super) legend: String,
    /// How long the axis is.
    pub(super) whole: Duration,
}

/// What each attempt did, by its number. Waiting belongs to the attempt that it is for. Where events are missing, the
/// times of the attempts say it.
pub(super) fn spans(
    attempts: &[AttemptDocument],
    events: &[Event],
    end: Timestamp,
) -> BTreeMap<u32, Vec<Span>> {
    let mut rows: BTreeMap<u32, Vec<Span>> = BTreeMap::new();
    let mut pending = Vec::new();
    for (at, event) in events.iter().enumerate() {
        let next = events.get(at + 1);
        let to = next.map_or(end, |next| next.at);
        let what = match event.to {
            _ if next.is_some_and(|next| next.number != event.number + 1) => What::Unknown,
            State::Running => What::Runs,
            State::Waiting => What::Parked,
            State::DlqPending | State::DlqRecorded => continue,
            state if state.is_end() => continue,
            _ => What::Waits,
        };
        pending.push(Span { what, from: event.at, to });
        if what != What::Waits {
            rows.entry(event.attempt).or_default().append(&mut pending);
        }
    }
    if let Some(last) = events.last() {
        let is_next = last.to == State::RetryScheduled;
        let row = last.attempt + u32::from(is_next);
        if !pending.is_empty() {
            rows.entry(row).or_default().append(&mut pending);
        }
    }
    for attempt in attempts {
        let Some(from) = attempt.started_at else { continue };
        let to = attempt.finished_at.unwrap_or(end);
        let span = Span { what: What::Runs, from, to };
        rows.entry(attempt.attempt).or_insert_with(|| vec![span]);
    }
    rows
}

/// A part of the axis.
struct Piece {
    from: Timestamp,
    to: Timestamp,
    is_idle: bool,
    is_cut: bool,
    /// How long it is drawn, as against the others.
    weight: f64,
    /// From which column to which.
    columns: (usize, usize),
}

/// Draws a bar for each row. `styles` says how what ran looks.
pub(super) fn draw(rows: &[&[Span]], styles: &[Style], width: usize) -> Bars {
    let mut axis = pieces(rows);
    let whole = match (axis.first(), axis.last()) {
        (Some(first), Some(last)) => last.to.since(first.from),
        _ => Duration::ZERO,
    };
    cut(&mut axis);
    let is_placed = place(&mut axis, width);
    if !is_placed {
        axis.iter_mut().for_each(|piece| piece.is_cut = false);
    }
    let mut bars = Vec::new();
    for (row, style) in rows.iter().zip(styles) {
        bars.push(match is_placed {
            true => bar(row, &axis, *style, width),
            false => rough_bar(row, &axis, *style, width),
        });
    }
    let has = |what| rows.iter().any(|row| row.iter().any(|span| span.what == what));
    let mut legend = vec!["█ runs"];
    legend.extend(has(What::Waits).then_some("░ waits"));
    legend.extend(has(What::Parked).then_some("▒ parked"));
    legend.extend(has(What::Unknown).then_some("· not shown"));
    legend.extend(axis.iter().any(|piece| piece.is_cut).then_some("≈ time left out"));
    Bars { bars, legend: legend.join("  "), whole }
}

/// The axis: what ran, and what was in between.
fn pieces(rows: &[&[Span]]) -> Vec<Piece> {
    let mut spans: Vec<Span> = rows.iter().flat_map(|row| row.iter().copied()).collect();
    spans.sort_by_key(|span| span.from);
    let mut axis: Vec<Piece> = Vec::new();
    for span in spans {
        let is_idle = span.what != What::Runs;
        match axis.last_mut() {
            Some(last) if last.is_idle && is_idle => *last = piece(last.from, span.to, true),
            Some(last) if last.to < span.from => {
                let (from, to) = (last.to, span.from);
                axis.push(piece(from, to, true));
                axis.push(piece(span.from, span.to, is_idle));
            }
            _ => axis.push(piece(span.from, span.to, is_idle)),
        }
    }
    axis
}

fn piece(from: Timestamp, to: Timestamp, is_idle: bool) -> Piece {
    let weight = to.since(from).as_secs_f64();
    Piece { from, to, is_idle, is_cut: false, weight, columns: (0, 0) }
}

/// Idle time may take so much more room than what ran.
const IDLE_MOST: f64 = 4.0;

/// Shortens the gaps if they are too long to leave room for what ran. A longer gap stays longer.
fn cut(axis: &mut [Piece]) {
    let sum = |axis: &[Piece], is_idle| -> f64 {
        axis.iter().filter(|piece| piece.is_idle == is_idle).map(|piece| piece.weight).sum()
    };
    let (idle, ran) = (sum(axis, true), sum(axis, false));
    if axis.iter().all(|piece| piece.is_idle) || idle <= ran * IDLE_MOST {
        return;
    }
    let gaps = axis.iter().filter(|piece| piece.is_idle).count();
    let most = (ran * IDLE_MOST).max(idle / 1_000.0) / gaps as f64;
    for gap in axis.iter_mut().filter(|piece| piece.is_idle && piece.weight > most) {
        gap.is_cut = true;
        gap.weight = most * (1.0 + (gap.weight / most).ln() / 2.0);
    }
}

/// Gives each piece its columns. There may be too many pieces for that.
fn place(axis: &mut [Piece], width: usize) -> bool {
    let least = |piece: &Piece, in_cut: usize| match (piece.is_idle, piece.is_cut) {
        (false, _) => 1,
        (true, true) => in_cut,
        (true, false) => 0,
    };
    let needs = |axis: &[Piece], in_cut| axis.iter().map(|piece| least(piece, in_cut)).sum();
    let fits = [3, 1].map(|in_cut| (in_cut, needs(axis, in_cut)));
    let Some((in_cut, needed)) = fits.into_iter().find(|(_, needs): &(_, usize)| *needs <= width)
    else {
        return false;
    };
    let whole: f64 = axis.iter().map(|piece| piece.weight).sum::<f64>().max(f64::MIN_POSITIVE);
    let free = width - needed;
    let (mut weight, mut given, mut begin) = (0.0, 0, 0);
    for piece in axis {
        weight += piece.weight;
        given += least(piece, in_cut);
        let end = given + column(weight / whole * free as f64);
        piece.columns = (begin, end.min(width));
        begin = piece.columns.1;
    }
    true
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is a column of a terminal"
)]
fn column(place: f64) -> usize {
    place.round() as usize
}

/// How a span looks, if what ran has this style.
fn look(what: What, style: Style) -> (char, Style) {
    match what {
        What::Waits => ('░', DIM),
        What::Runs => ('█', style),
        What::Parked => ('▒', Style::new().fg_color(Some(AnsiColor::Blue.into()))),
        What::Unknown => ('·', DIM),
    }
}

/// A bar of far too many spans: each column shows what took most of its time.
fn rough_bar(row: &[Span], axis: &[Piece], style: Style, width: usize) -> String {
    let (Some(first), Some(last)) = (axis.first(), axis.last()) else { return " ".repeat(width) };
    let step = last.to.since(first.from).div_f64(width as f64);
    let cell = |column: usize| {
        let begin = first.from.plus(step.mul_f64(column as f64));
        let end = begin.plus(step);
        let mut took: Vec<(Duration, What)> = Vec::new();
        for span in row {
            let time = span.to.min(end).since(span.from.max(begin));
            match took.iter_mut().find(|(_, what)| *what == span.what) {
                Some((sum, _)) => *sum += time,
                None => took.push((time, span.what)),
            }
        }
        let most = took.into_iter().max_by_key(|(time, _)| *time);
        most.filter(|(time, _)| !time.is_zero()).map(|(_, what)| look(what, style))
    };
    paint(&(0..width).map(cell).collect::<Vec<_>>())
}

/// One bar.
fn bar(row: &[Span], axis: &[Piece], style: Style, width: usize) -> String {
    let mut cells: Vec<Option<(char, Style)>> = vec![None; width];
    for span in row {
        let look = look(span.what, style);
        for piece in axis {
            let (from, to) = (span.from.max(piece.from), span.to.min(piece.to));
            let is_of_it = piece.is_idle == (span.what != What::Runs);
            if !is_of_it || from > to || (from == to && piece.from < piece.to) {
                continue;
            }
            let (first, last) = (at(piece, from), at(piece, to));
            let last = if from == piece.from && to == piece.to { piece.columns.1 } else { last };
            cells[first..last.max(first)].fill(Some(look));
            let middle = (piece.columns.0 + piece.columns.1) / 2;
            if piece.is_cut && (first..last).contains(&middle) {
                cells[middle] = Some(('≈', look.1));
            }
        }
    }
    paint(&cells)
}

/// The column of a time in a piece.
fn at(piece: &Piece, time: Timestamp) -> usize {
    let (begin, end) = piece.columns;
    let whole = piece.to.since(piece.from).as_secs_f64();
    if whole == 0.0 {
        return begin;
    }
    let part = time.since(piece.from).as_secs_f64() / whole;
    (begin + column(part * (end - begin) as f64)).min(end)
}

/// The cells as text, with as few changes of colour as can be.
fn paint(cells: &[Option<(char, Style)>]) -> String {
    let (mut text, mut style) = (String::new(), Style::new());
    for cell in cells {
        let (sign, next) = cell.unwrap_or((' ', Style::new()));
        if next != style {
            text.push_str(&format!("{style:#}{next}"));
            style = next;
        }
        text.push(sign);
    }
    text.push_str(&format!("{style:#}"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: i64) -> Timestamp {
        Timestamp::from_micros(1_790_000_000_000_000 + ms * 1_000)
    }

    /// Spans that follow one another: what, and how long in ms.
    fn row(begin: &mut i64, spans: &[(What, i64)]) -> Vec<Span> {
        let mut spans_of = Vec::new();
        for (what, ms) in spans {
            spans_of.push(Span { what: *what, from: at_ms(*begin), to: at_ms(*begin + ms) });
            *begin += ms;
        }
        spans_of
    }

    fn check(rows: &[&[(What, i64)]], width: usize, expected: &[&str]) {
        let mut begin = 0;
        let rows: Vec<Vec<Span>> = rows.iter().map(|it| row(&mut begin, it)).collect();
        let rows: Vec<&[Span]> = rows.iter().map(Vec::as_slice).collect();
        let drawn = draw(&rows, &vec![Style::new(); rows.len()], width);
        let plain = |bar: &String| anstream::adapter::strip_str(bar).to_string();
        let bars: Vec<String> = drawn.bars.iter().map(plain).collect();
        let bars: Vec<&str> = bars.iter().map(|bar| bar.trim_end()).collect();
        assert_eq!(bars, expected);
    }

    use What::{Parked, Runs, Waits};

    #[test]
    fn bars_are_as_long_as_what_they_stand_for() {
        check(
            &[&[(Waits, 100), (Runs, 300)], &[(Waits, 400), (Runs, 200)]],
            20,
            &["░░██████", "        ░░░░░░░█████"],
        );
    }

    #[test]
    fn a_long_wait_is_cut_and_marked() {
        check(
            &[&[(Waits, 10), (Runs, 1_000)], &[(Waits, 3_600_000), (Runs, 3_000)]],
            20,
            &["█", " ░░░░░░░░≈░░░░░░░░██"],
        );
    }

    #[test]
    fn what_is_parked_and_what_took_no_time_can_be_seen() {
        check(&[&[(Runs, 0), (Parked, 500), (Runs, 100)]], 12, &["█▒▒▒▒≈▒▒▒▒██"]);
    }

    #[test]
    fn many_attempts_fit_into_few_columns() {
        let rows: Vec<Vec<(What, i64)>> =
            (0..30).map(|_| vec![(Waits, 9_000), (Runs, 10)]).collect();
        let rows: Vec<&[(What, i64)]> = rows.iter().map(Vec::as_slice).collect();
        let mut begin = 0;
        let spans: Vec<Vec<Span>> = rows.iter().map(|it| row(&mut begin, it)).collect();
        let spans: Vec<&[Span]> = spans.iter().map(Vec::as_slice).collect();
        let drawn = draw(&spans, &vec![Style::new(); spans.len()], 20);
        assert_eq!(drawn.bars.len(), 30);
    }
}
