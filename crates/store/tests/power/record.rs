//! The record of a run: what its processes did to their files, and what they were told, in order.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use super::common::child;

/// One thing that happened. A name is what follows the path of the database: the database itself has an
/// empty one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Created {
        name: String,
    },
    Removed {
        name: String,
    },
    Written {
        name: String,
        offset: usize,
        data: Vec<u8>,
    },
    CutTo {
        name: String,
        length: usize,
    },
    Synced {
        name: String,
    },
    FolderSynced,
    /// A line of a process: something was acknowledged.
    Told(String),
}

/// The file into which processes write what they were told. A power cut does not touch it.
pub(crate) const TOLD: &str = "-told";

/// Builds the recorder with the compiler that also builds SQLite.
pub(crate) fn build_recorder(folder: &Path) -> PathBuf {
    let library = folder.join("record.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/power/record.c");
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]);
    command.arg(&library).arg(source).args(["-ldl", "-lpthread"]);
    let output = command.output().expect("a C compiler is needed, as for SQLite");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}

/// Runs a test as a process of its own, under the recorder. What it does is added to the record.
pub(crate) fn run_recorded(recorder: &Path, test: &str, database: &Path, record: &Path) {
    let mut command = child(test, database);
    command.env("LD_PRELOAD", recorder);
    command.env("WINDLASS_RECORD_OF", database).env("WINDLASS_RECORD_TO", record);
    command.env("WINDLASS_RECORD_FAIL", record.with_file_name("fail"));
    let output = command.output().expect("it starts");
    let said = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(said[0].contains("the work is done"), "{command:?}:\n{}", said.join("\n"));
}

/// Reads a record.
pub(crate) fn read(mut notes: &[u8]) -> Vec<Happened> {
    let mut all = Vec::new();
    while !notes.is_empty() {
        let kind = take(&mut notes, 1)[0];
        let name = usize::from(take(&mut notes, 1)[0]);
        let offset = u64::from_ne_bytes(take(&mut notes, 8).try_into().unwrap());
        let offset = usize::try_from(offset).unwrap();
        let length = u32::from_ne_bytes(take(&mut notes, 4).try_into().unwrap());
        let name = String::from_utf8(take(&mut notes, name).to_vec()).unwrap();
        let data = take(&mut notes, usize::try_from(length).unwrap()).to_vec();
        let is_folder = name == "/";
        match (kind, name) {
            (b'w', name) if name == TOLD => {
                all.push(Happened::Told(String::from_utf8(data).unwrap()));
            }
            // The lock and the index of the log mean nothing after a restart.
            (_, name) if [TOLD, "-lock", "-shm"].contains(&&*name) => {}
            (b's', _) if is_folder => all.push(Happened::FolderSynced),
            (b's', name) => all.push(Happened::Synced { name }),
            (b'c', name) => all.push(Happened::Created { name }),
            (b'u', name) => all.push(Happened::Removed { name }),
            (b't', name) => all.push(Happened::CutTo { name, length: offset }),
            (b'w', name) => all.push(Happened::Written { name, offset, data }),
            (kind, name) => panic!("a note of kind {kind} of {name:?}"),
        }
    }
    all
}

fn take<'a>(notes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = notes.split_at(length);
    *notes = rest;
    taken
}
