//! A line: the jobs of one lane that are remembered, best first.

use windlass_kernel::{Timestamp, job::Rank};

/// The jobs of one lane, best first.
#[derive(Default)]
pub(crate) struct Line {
    /// Those before this place are taken.
    from: usize,
    ranks: Vec<Rank>,
    seqs: Vec<i64>,
    /// From here on they were read and are not remembered, for there are too many.
    pub(crate) cut_from: Option<(Rank, i64)>,
    /// No retry is due before this.
    pub(crate) retry_at: Option<Timestamp>,
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.from == self.ranks.len() && self.cut_from.is_none() && self.retry_at.is_none()
    }

    /// The ranks of those that are remembered, best first.
    pub(crate) fn ranks(&self) -> &[Rank] {
        &self.ranks[self.from..]
    }

    /// Where they are, in the same order.
    pub(crate) fn seqs(&self) -> &[i64] {
        &self.seqs[self.from..]
    }

    fn place_of(&self, rank: Rank, seq: i64) -> Result<usize, usize> {
        let before = |place: usize| (self.ranks[place], self.seqs[place]) < (rank, seq);
        let (mut low, mut high) = (self.from, self.ranks.len());
        // Most come at the end.
        if high > low && before(high - 1) {
            return Err(high);
        }
        while low < high {
            let middle = low.midpoint(high);
            if before(middle) { low = middle + 1 } else { high = middle }
        }
        let is_it = low < self.ranks.len() && (self.ranks[low], self.seqs[low]) == (rank, seq);
        if is_it { Ok(low) } else { Err(low) }
    }

    /// Remembers a job, unless it is known or stands behind the cut. It says whether it did.
    pub(crate) fn insert(&mut self, rank: Rank, seq: i64) -> bool {
        if self.cut_from.is_some_and(|cut_from| (rank, seq) >= cut_from) {
            return false;
        }
        let Err(place) = self.place_of(rank, seq) else { return false };
        self.ranks.insert(place, rank);
        self.seqs.insert(place, seq);
        true
    }

    /// Forgets a job, and says whether it was known.
    pub(crate) fn remove(&mut self, rank: Rank, seq: i64) -> bool {
        let Ok(place) = self.place_of(rank, seq) else { return false };
        if place == self.from {
            self.from += 1;
        } else {
            self.ranks.remove(place);
            self.seqs.remove(place);
        }
        if self.from == self.ranks.len() || self.from > 1_024 && self.from * 2 > self.ranks.len() {
            self.ranks.drain(..self.from);
            self.seqs.drain(..self.from);
            self.from = 0;
        }
        true
    }

    /// Remembers only the first so many, and says how many it forgot.
    pub(crate) fn cut(&mut self, kept: usize) -> usize {
        let kept = self.from + kept;
        self.cut_from = Some((self.ranks[kept], self.seqs[kept]));
        let forgotten = self.ranks.len() - kept;
        self.ranks.truncate(kept);
        self.seqs.truncate(kept);
        forgotten
    }
}
