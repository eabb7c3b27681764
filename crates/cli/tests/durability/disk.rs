//! A disk that can lose its power or fail: `disk.c` runs inside a server or a database. After a power loss the tests
//! read the bytes that are left.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use fastrand::Rng;

/// The simulated disk below a directory.
pub(crate) struct Disk {
    library: PathBuf,
    directory: PathBuf,
    notes: PathBuf,
}

/// A write or a truncation that no sync has followed.
struct Note {
    offset: u64,
    /// The written bytes. `None`: the file was truncated at `offset`.
    new: Option<Vec<u8>>,
    old: Vec<u8>,
    old_size: u64,
}

impl Disk {
    /// Compiles the library into a directory.
    pub(crate) fn new(scratch: &Path, directory: &Path) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/durability/disk.c");
        let library = scratch.join("disk.so");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
        assert!(built.expect("there is a C compiler").success(), "disk.c compiles");
        let notes = scratch.join("notes");
        fs::create_dir_all(&notes).expect("the directory is ours");
        // A database runs as another user, which must be able to write here.
        fs::set_permissions(&notes, fs::Permissions::from_mode(0o777)).expect("the directory is ours");
        Disk { library, directory: directory.to_owned(), notes }
    }

    /// The environment that a process needs to write to this disk.
    pub(crate) fn variables(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("LD_PRELOAD", self.library.clone()),
            ("DISK_DIRECTORY", self.directory.clone()),
            ("DISK_NOTES", self.notes.clone()),
        ]
    }

    /// From now on writes fail with this errno, or syncs if the text begins with `s`. `None`: nothing fails.
    pub(crate) fn fail(&self, with: Option<&str>) {
        let file = self.notes.join("fault");
        match with {
            Some(text) => fs::write(file, text).expect("the directory is ours"),
            None => fs::remove_file(file).expect("the disk was failing"),
        }
    }

    /// Simulates a power loss after the death of the writer. Of the writes that were not synced, some have reached the
    /// disk, some have not, and some have in part. Returns the number of lost writes.
    pub(crate) fn lose_power(&self, random: &mut Rng) -> usize {
        let mut lost = 0;
        for entry in fs::read_dir(&self.notes).expect("the directory is ours").flatten() {
            let file = self.directory.join(entry.file_name().to_string_lossy().replace('+', "/"));
            let notes = parse(&fs::read(entry.path()).expect("notes can be read"));
            fs::remove_file(entry.path()).expect("notes are ours");
            let Ok(mut bytes) = fs::read(&file) else { continue };
            for note in notes.iter().rev() {
                let at = note.offset as usize;
                if bytes.len() < at + note.old.len() {
                    bytes.resize(at + note.old.len(), 0);
                }
                bytes[at..at + note.old.len()].copy_from_slice(&note.old);
                bytes.resize(note.old_size as usize, 0);
            }
            for note in notes {
                lost += usize::from(!reach(&mut bytes, note, random));
            }
            fs::write(&file, bytes).expect("the file is ours");
        }
        for shared in fs::read_dir(&self.directory).expect("the directory is there").flatten() {
            if shared.file_name().to_string_lossy().ends_with("-shm") {
                fs::remove_file(shared.path()).expect("the file is ours");
            }
        }
        lost
    }
}

/// Applies a write to the file in full, not at all, or only its first sectors. Returns whether it was applied in full.
fn reach(bytes: &mut Vec<u8>, note: Note, random: &mut Rng) -> bool {
    let at = note.offset as usize;
    let Some(new) = note.new else {
        let is_cut = random.bool();
        if is_cut {
            bytes.resize(at, 0);
        }
        return is_cut;
    };
    let length = match random.u8(..4) {
        0 => 0,
        1 => new.len().min(512 * random.usize(..9)),
        _ => new.len(),
    };
    if bytes.len() < at + length {
        bytes.resize(at + length, 0);
    }
    bytes[at..at + length].copy_from_slice(&new[..length]);
    length == new.len()
}

fn parse(mut bytes: &[u8]) -> Vec<Note> {
    fn number(bytes: &mut &[u8]) -> Option<u64> {
        let (first, rest) = bytes.split_first_chunk::<8>()?;
        *bytes = rest;
        Some(u64::from_le_bytes(*first))
    }
    fn take(bytes: &mut &[u8], length: u64) -> Option<Vec<u8>> {
        let (first, rest) = bytes.split_at_checked(length as usize)?;
        *bytes = rest;
        Some(first.to_vec())
    }
    let mut notes = Vec::new();
    // The kill may have cut off the last note: the write of that note had not begun.
    while let Some(note) = (|| {
        let (offset, length, old_length, old_size) =
            (number(&mut bytes)?, number(&mut bytes)?, number(&mut bytes)?, number(&mut bytes)?);
        let old = take(&mut bytes, old_length)?;
        let new = if length == u64::MAX { None } else { Some(take(&mut bytes, length)?) };
        Some(Note { offset, new, old, old_size })
    })() {
        notes.push(note);
    }
    notes
}
