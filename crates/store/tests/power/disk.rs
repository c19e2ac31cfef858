//! A disk of which the power can be cut: it knows what is surely there, and what may or may not be.
//!
//! What a file holds is sure once the file was synced. Of what was done to it since, any part may be there
//! and any part missing, whatever the order: a whole write, some of its sectors, its length. Names are
//! sure once the folder was synced; the file system keeps the order of its names, so of later changes
//! of names there are the first few.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use windlass_testkit::random::Chance;

use super::record::Happened;

/// What is found after a power cut: files by the end of their names.
pub(crate) type Image = BTreeMap<String, Vec<u8>>;

/// A disk, as the machine knows it just now.
#[derive(Default)]
pub(crate) struct Disk {
    files: Vec<Contents>,
    /// Which file has which name, surely.
    names: BTreeMap<String, usize>,
    /// Changes of names since the folder was synced.
    renames: Vec<(String, Option<usize>)>,
    /// A disk that says it has synced and has not. Only to see that the judge notices.
    lie: Option<Lie>,
}

/// What a disk does not do, though it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// It syncs nothing.
    Everything,
    /// It does not sync the write-ahead log.
    Log,
    /// It does not sync the database itself.
    Database,
}

#[derive(Clone, Default)]
struct Contents {
    sure: Vec<u8>,
    unsure: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write { offset: usize, data: Vec<u8> },
    CutTo(usize),
}

impl Disk {
    pub(crate) fn new(lie: Option<Lie>) -> Self {
        Self { lie, ..Self::default() }
    }

    /// Something happens. A write is kept as unsure until a sync.
    pub(crate) fn happens(&mut self, happened: &Happened) {
        match happened {
            Happened::Created { name } => {
                self.files.push(Contents::default());
                self.renames.push((name.clone(), Some(self.files.len() - 1)));
            }
            Happened::Removed { name } => self.renames.push((name.clone(), None)),
            Happened::Written { name, offset, data } => {
                let change = Change::Write { offset: *offset, data: data.clone() };
                self.file(name).unsure.push(change);
            }
            Happened::CutTo { name, length } => {
                self.file(name).unsure.push(Change::CutTo(*length));
            }
            Happened::Synced { name } if !self.lies_about(name) => self.file(name).sync(),
            Happened::FolderSynced if !self.lies_about("/") => {
                let renames: Vec<_> = self.renames.drain(..).collect();
                renames.into_iter().for_each(|rename| change_name(&mut self.names, rename));
            }
            Happened::Synced { .. } | Happened::FolderSynced | Happened::Told(_) => {}
        }
    }

    fn lies_about(&self, name: &str) -> bool {
        match self.lie {
            None => false,
            Some(Lie::Everything) => true,
            Some(Lie::Log) => name == "-wal",
            Some(Lie::Database) => name.is_empty(),
        }
    }

    /// Is something of the database itself on its way to the disk? Then a checkpoint is going on.
    pub(crate) fn is_checkpointing(&self) -> bool {
        let database = self.names_now().get("").copied();
        database.is_some_and(|place| !self.files[place].unsure.is_empty())
    }

    fn names_now(&self) -> BTreeMap<String, usize> {
        let mut names = self.names.clone();
        self.renames.iter().cloned().for_each(|rename| change_name(&mut names, rename));
        names
    }

    fn file(&mut self, name: &str) -> &mut Contents {
        let place = *self.names_now().get(name).unwrap_or_else(|| panic!("{name:?} is not there"));
        &mut self.files[place]
    }

    /// What is found if all goes well.
    pub(crate) fn whole(&self) -> Image {
        let names = self.names_now().into_iter();
        names.map(|(name, place)| (name, self.files[place].kept(|_| Kept::Whole))).collect()
    }

    /// What may be found if the power goes now.
    pub(crate) fn cut(&self, cut: Cut, chance: &mut Chance) -> Image {
        let mut names = self.names.clone();
        let kept = match cut {
            Cut::Nothing => 0,
            Cut::Everything => self.renames.len(),
            Cut::Some { .. } => index(chance, self.renames.len() + 1),
        };
        self.renames[..kept].iter().cloned().for_each(|it| change_name(&mut names, it));
        let contents = |place: usize, chance: &mut Chance| match cut {
            Cut::Nothing => self.files[place].kept(|_| Kept::Not),
            Cut::Everything => self.files[place].kept(|_| Kept::Whole),
            Cut::Some { percent, tear } => self.files[place].some(percent, tear, chance),
        };
        names.into_iter().map(|(name, place)| (name, contents(place, chance))).collect()
    }
}

/// What becomes of what is unsure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// Nothing of it is there.
    Nothing,
    /// All of it is there, as after a process was killed.
    Everything,
    /// So many writes of a hundred are there, and some of them are torn between sectors of this size.
    Some { percent: u64, tear: Option<usize> },
}

impl Cut {
    pub(crate) fn random(chance: &mut Chance) -> Self {
        let percent = chance.weighted(&[(1, 10), (2, 50), (1, 90), (1, 100)]);
        let tear = chance.weighted(&[(1, None), (2, Some(512)), (2, Some(4096))]);
        match chance.below(10) {
            0 => Self::Nothing,
            1 => Self::Everything,
            _ => Self::Some { percent, tear },
        }
    }
}

/// What is there of a write.
enum Kept {
    Not,
    Whole,
    /// These sectors of it.
    Sectors(usize, BTreeSet<usize>),
}

impl Contents {
    fn sync(&mut self) {
        let unsure = mem::take(&mut self.unsure);
        apply(&mut self.sure, &unsure, |_| Kept::Whole);
    }

    fn kept(&self, how: impl FnMut(&Change) -> Kept) -> Vec<u8> {
        let mut bytes = self.sure.clone();
        apply(&mut bytes, &self.unsure, how);
        bytes
    }

    /// Some writes, some of them torn. The length may be one that the file had before, and what was never
    /// written inside of it may be anything.
    fn some(&self, percent: u64, tear: Option<usize>, chance: &mut Chance) -> Vec<u8> {
        let mut bytes = self.kept(|change| match (change, tear) {
            _ if !chance.percent(percent) => Kept::Not,
            (Change::Write { offset, data }, Some(size)) if chance.percent(40) => {
                let sectors = offset / size..(offset + data.len()).div_ceil(size);
                Kept::Sectors(size, sectors.filter(|_| chance.percent(50)).collect())
            }
            _ => Kept::Whole,
        });
        let lengths = self.lengths();
        if lengths.len() > 1 && chance.percent(25) {
            let length = lengths[index(chance, lengths.len())];
            let old = bytes.len();
            bytes.resize(length, 0);
            if length > old && chance.percent(50) {
                bytes[old..].fill_with(|| chance.draw().to_le_bytes()[0]);
            }
        }
        bytes
    }

    /// The lengths that the file had since it was synced.
    fn lengths(&self) -> Vec<usize> {
        let mut lengths = vec![self.sure.len()];
        for change in &self.unsure {
            let last = lengths[lengths.len() - 1];
            lengths.push(match change {
                Change::Write { offset, data } => last.max(offset + data.len()),
                Change::CutTo(length) => *length,
            });
        }
        lengths
    }
}

fn apply(bytes: &mut Vec<u8>, changes: &[Change], mut how: impl FnMut(&Change) -> Kept) {
    for change in changes {
        match (how(change), change) {
            (Kept::Not, _) => {}
            (_, Change::CutTo(length)) => bytes.resize(*length, 0),
            (Kept::Whole, Change::Write { offset, data }) => put(bytes, *offset, data),
            (Kept::Sectors(size, kept), Change::Write { offset, data }) => {
                for sector in kept {
                    let start = (sector * size).max(*offset);
                    let end = ((sector + 1) * size).min(offset + data.len());
                    put(bytes, start, &data[start - offset..end - offset]);
                }
            }
        }
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}

fn change_name(names: &mut BTreeMap<String, usize>, (name, place): (String, Option<usize>)) {
    match place {
        Some(place) => names.insert(name, place),
        None => names.remove(&name),
    };
}

fn index(chance: &mut Chance, length: usize) -> usize {
    usize::try_from(chance.below(length as u64)).unwrap()
}
