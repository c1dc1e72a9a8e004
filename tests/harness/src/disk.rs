//! Servers whose machine loses its power: the data that was not synced is gone, and a restart reads what is left.
//!
//! [`Disk::of`] lets a preloaded library record what is durable (`disk_shim.rs`). [`Disk::cut_power`] kills the server
//! with its children and replaces its AOF and RDB files by the durable ones. The directory `appendonlydir` itself
//! counts as durable as soon as it exists.

use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Instant;

use crate::clock::{build, fake_clock};
use crate::file_identity::identity;
use crate::TestServer;

const AOF_DIRECTORY: &str = "appendonlydir";

/// A choice among what a file system may leave behind beyond what was synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaves {
    /// Names that were given, changed or removed since their directory was last synced are on the disk, too.
    pub new_names: bool,
    /// A part of what was written to each file since its last sync is on the disk: its beginning, of random length.
    pub torn_tails: bool,
}

/// The disk of one server.
pub struct Disk {
    root: PathBuf,
}

/// A loss of power.
pub struct Cut {
    /// After this moment nothing has become durable.
    pub at: Instant,
    /// Bytes that the server had written to files that are lost or shorter now.
    pub bytes_lost: u64,
}

/// A file that survives, and how much of it.
struct Kept {
    path: PathBuf,
    name: PathBuf,
    length: u64,
}

impl Disk {
    /// From its next start on, the server has such a disk, on which a sync takes `sync_us` microseconds on average, and
    /// a wall clock as of [`fake_clock`].
    pub fn of(server: &mut TestServer, sync_us: u64) -> Disk {
        static SHIM: OnceLock<PathBuf> = OnceLock::new();
        let shim = SHIM.get_or_init(|| build("disk_shim"));
        fake_clock(server);
        let root = server.dir().to_path_buf();
        std::os::unix::fs::symlink(shim, root.join("disk_shim.so")).expect("a link");
        let disk = Disk { root };
        fs::create_dir_all(disk.record("lengths")).expect("a directory");
        fs::create_dir_all(disk.record("names")).expect("a directory");
        File::create(disk.record("lock")).expect("a file");
        server.set_env("LD_PRELOAD", "./clock_shim.so ./disk_shim.so");
        server.set_env("LOCK_TEST_DISK", &disk.record("").to_string_lossy());
        server.set_env("LOCK_TEST_DISK_US", &sync_us.to_string());
        disk
    }

    /// Ends the server and its children at once, and leaves of its data what the disk has. `random` gives numbers from
    /// 0 to 1.
    pub fn cut_power(
        &self,
        server: &mut TestServer,
        leaves: Leaves,
        random: &mut dyn FnMut() -> f64,
    ) -> Cut {
        let lock = File::open(self.record("lock")).expect("a file");
        // SAFETY: flock(2) takes a descriptor that is open here.
        assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0);
        let at = Instant::now();
        server.signal(libc::SIGSTOP);
        for child in children(server.pid()) {
            // SAFETY: kill(2) takes numbers; the parent is stopped, so the pid is still its child's.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        server.crash();
        let kept = self.kept(leaves, random);
        let written: u64 = self.files().iter().map(|file| length(file)).sum();
        self.replace(&kept);
        let left: u64 = self.files().iter().map(|file| length(file)).sum();
        Cut {
            at,
            bytes_lost: written.saturating_sub(left),
        }
    }

    /// From its next start on, the disk reports syncs that it has not made.
    pub fn lie(&self, server: &mut TestServer) {
        server.set_env("LOCK_TEST_DISK_LIES", "1");
    }

    /// Deletes the data of a server that is not running.
    pub fn wipe(&self) {
        self.replace(&[]);
    }

    /// The number of files of commands that the AOF of a server that is not running has: while it is rewritten, more
    /// than one, and only the last may end in the middle of a command.
    pub fn increments(&self) -> usize {
        let mut files = listed(&self.root.join(AOF_DIRECTORY)).into_iter();
        let manifest = files.find(|path| path.to_string_lossy().ends_with(".manifest"));
        let text = manifest.and_then(|path| fs::read_to_string(path).ok());
        let text = text.unwrap_or_default();
        text.lines().filter(|line| line.contains("type i")).count()
    }

    fn record(&self, name: &str) -> PathBuf {
        self.root.join("durable").join(name)
    }

    /// The server's data files: those of the AOF's directory, and in its own directory the RDB and temporary ones.
    fn files(&self) -> Vec<PathBuf> {
        let own = listed(&self.root).into_iter().filter(|path| is_data(path));
        own.chain(listed(&self.root.join(AOF_DIRECTORY))).collect()
    }

    fn kept(&self, leaves: Leaves, random: &mut dyn FnMut() -> f64) -> Vec<Kept> {
        let (top, below) = match leaves.new_names {
            true => (self.root.clone(), self.root.join(AOF_DIRECTORY)),
            false => (
                self.record("names/top"),
                self.record("names").join(AOF_DIRECTORY),
            ),
        };
        let own = listed(&top).into_iter().filter(|path| is_data(path));
        let own = own.map(|path| (PathBuf::new(), path));
        let of_aof = listed(&below).into_iter();
        let of_aof = of_aof.map(|path| (PathBuf::from(AOF_DIRECTORY), path));
        let all = own.chain(of_aof).map(|(place, path)| {
            let found = fs::metadata(&path).expect("a file");
            let durable = self.durable_length(&found).min(found.len());
            let torn = match leaves.torn_tails {
                true => ((found.len() - durable) as f64 * random()) as u64,
                false => 0,
            };
            Kept {
                name: place.join(path.file_name().expect("a name")),
                path,
                length: durable + torn,
            }
        });
        all.collect()
    }

    fn durable_length(&self, found: &Metadata) -> u64 {
        let text = fs::read_to_string(self.record("lengths").join(identity(found)));
        text.map_or(0, |text| text.parse().expect("a number"))
    }

    /// Puts these files in the place of the server's data; all of them are durable then.
    fn replace(&self, kept: &[Kept]) {
        let image = self.root.join("image");
        fs::create_dir_all(image.join(AOF_DIRECTORY)).expect("a directory");
        for file in kept {
            let mut bytes = Vec::new();
            let source = File::open(&file.path).expect("a file");
            source
                .take(file.length)
                .read_to_end(&mut bytes)
                .expect("data");
            fs::write(image.join(&file.name), bytes).expect("a file");
        }
        for path in self.files() {
            fs::remove_file(path).expect("a file");
        }
        for record in ["lengths", "names"] {
            fs::remove_dir_all(self.record(record)).expect("a directory");
        }
        for directory in ["lengths", "names/top", "names/appendonlydir"] {
            fs::create_dir_all(self.record(directory)).expect("a directory");
        }
        let has_aof = self.root.join(AOF_DIRECTORY).exists();
        for file in kept {
            if let (true, Some(place)) = (has_aof, file.name.parent()) {
                fs::create_dir_all(self.root.join(place)).expect("a directory");
            }
            let path = self.root.join(&file.name);
            fs::rename(image.join(&file.name), &path).expect("a file");
            let names = match file.name.parent().is_some_and(|p| p.as_os_str().is_empty()) {
                true => self.record("names/top").join(&file.name),
                false => self.record("names").join(&file.name),
            };
            fs::hard_link(&path, names).expect("a link");
            let found = fs::metadata(&path).expect("a file");
            let record = self.record("lengths").join(identity(&found));
            fs::write(record, found.len().to_string()).expect("a file");
        }
        fs::remove_dir_all(image).expect("a directory");
    }
}

fn listed(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    files.map(|entry| entry.path()).collect()
}

fn is_data(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".rdb") || name.ends_with(".aof") || name.starts_with("temp-")
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}

/// The processes that any thread of this one has forked.
fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let lists = tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let text: Vec<String> = lists.collect();
    let words = text.iter().flat_map(|list| list.split_whitespace());
    words.filter_map(|word| word.parse().ok()).collect()
}
