//! One reading of a made-up `/proc`: what counts as a use, and what is read for it.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use lease_procfs::work::{UsedBy, command_text, mapped_path};
use lease_procfs::{Exclusion, Pass, ProcFs, ScanError, TargetPath};
use proptest::prelude::*;
use rustix::fs::inotify;

use crate::crew::{FakeProc, Place, pid};

fn target(path: impl Into<PathBuf>) -> TargetPath {
    TargetPath::new(path).unwrap()
}

/// Renders who uses a path, as `7000 cwd fd`.
fn users(pass: &Pass, path: impl Into<PathBuf>) -> Vec<String> {
    let found = pass.users_of(&target(path), &Exclusion::nobody()).unwrap();
    let each = found.users.iter().map(|user| {
        let uses = user.uses.iter().map(|one| format!(" {}", one.by.as_str()));
        format!("{}{}", user.pid, uses.collect::<String>())
    });
    each.collect()
}

fn fake(name: &str) -> FakeProc {
    let fake = FakeProc::new(name);
    fake.process(7_000, 1, 7_000, 5);
    fake
}

fn bytes(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}

// B34
#[test]
fn directory_file_and_mapping_at_or_below_a_path_occupy_it_by_whole_segments() {
    let fake = fake("uses");
    let check = |expected: &[&str]| {
        assert_eq!(users(&Pass::new(&fake.proc()), "/w/alloc-7"), expected);
    };
    check(&[]);
    for (name, by) in [("cwd", "cwd"), ("fd/3", "fd")] {
        for (path, counts) in [
            ("/w/alloc-7", true),
            ("/w/alloc-7/a.txt", true),
            ("/w/alloc-7/a/b", true),
            ("/w/alloc-70", false),
            ("/w/alloc-70/a.txt", false),
            ("/w", false),
            ("/", false),
            ("/x/w/alloc-7", false),
            ("socket:[7]", false),
            ("w/alloc-7", false),
        ] {
            fake.link(7_000, name, path);
            let expected = format!("7000 {by}");
            let expected = [&*expected];
            check(if counts { &expected } else { &[] });
        }
        fake.link(7_000, name, "/");
    }
    fake.map(7_000, b"/w/alloc-7/lib.so");
    check(&["7000 map"]);
    fake.map(7_000, b"/w/alloc-70/lib.so");
    check(&[]);
    fake.link(7_000, "cwd", "/w/alloc-7");
    fake.link(7_000, "fd/3", "/w/alloc-7/x");
    fake.map(7_000, b"/w/alloc-7/lib.so");
    check(&["7000 cwd fd map"]);
    // A file is a target like a directory, and so is everything there is.
    let pass = Pass::new(&fake.proc());
    assert_eq!(users(&pass, "/w/alloc-7/x"), ["7000 fd"]);
    assert_eq!(users(&pass, "/w/alloc-7//"), ["7000 cwd fd map"]);
    assert_eq!(users(&pass, "/"), ["1 cwd", "7000 cwd fd map"]);
}

// B36
#[test]
fn the_path_of_a_mapping_begins_after_its_padding() {
    let path = |line: &str| mapped_path(line.as_bytes()).map(<[u8]>::to_vec);
    let is = |text: &str| Some(text.as_bytes().to_vec());
    let wide = "7f00-7f01 r--p 00000000 fd:01 1234                       /w/alloc-7/lib.so";
    assert_eq!(path(wide), is("/w/alloc-7/lib.so"));
    let narrow = "7f00-7f01 r-xp 00000000 00:2f 1234 /w/a b";
    assert_eq!(path(narrow), is("/w/a b"));
    assert_eq!(
        path("7f00-7f01 r--p 00000000 fd:01 1234     /a  b  (deleted)"),
        is("/a  b  (deleted)")
    );
    for none in [
        "7f00-7f01 rw-p 00000000 00:00 0 ",
        "7f00-7f01 rw-p 00000000 00:00 0",
        "7f00-7f01 rw-p 00000000 00:00 0                          [heap]",
        "7f00-7f01 rw-p 00000000 00:00 0                          /w/alloc-7/lib.so",
        "7f00-7f01 rw-p 00000000 00:0f 9                          anon_inode:[perf]",
        "7f00-7f01 r--p 00000000 fd:01",
        "",
        " ",
        "/w/alloc-7/lib.so",
    ] {
        assert_eq!(path(none), None, "{none:?}");
    }
    let fake = fake("padding");
    fake.write(
        7_000,
        "maps",
        format!("7f00-7f01 rw-p 00000000 00:00 0 \n{wide}\n{narrow}").as_bytes(),
    );
    let pass = Pass::new(&fake.proc());
    assert_eq!(users(&pass, "/w/alloc-7"), ["7000 map"]);
    assert_eq!(users(&pass, "/w/a b"), ["7000 map"], "the last line");
}

// B36
#[test]
fn every_file_that_is_mapped_here_is_seen() {
    // The parts of this very program, as the kernel prints them.
    let maps = std::fs::read("/proc/self/maps").unwrap();
    let files = maps.split(|&byte| byte == b'\n').filter_map(mapped_path);
    let own = std::env::current_exe().unwrap().canonicalize().unwrap();
    let is_own = |path: &&[u8]| *path == own.as_os_str().as_bytes();
    assert!(files.filter(is_own).count() > 1);
    let pass = Pass::new(&ProcFs::system());
    let found = pass.users_of(&target(&own), &Exclusion::nobody()).unwrap();
    let this = rustix::process::getpid().as_raw_nonzero().get();
    let user = found.users.iter().find(|user| user.pid.get() == this);
    assert!(
        user.unwrap()
            .uses
            .iter()
            .any(|one| one.by == UsedBy::Mapping)
    );
}

// B37
#[test]
fn what_was_removed_still_counts() {
    let fake = fake("deleted");
    let check = |path: &str, expected: &[&str]| {
        assert_eq!(users(&Pass::new(&fake.proc()), path), expected, "{path}");
    };
    for (name, by) in [("cwd", "7000 cwd"), ("fd/4", "7000 fd")] {
        fake.link(7_000, name, "/w/alloc-7 (deleted)");
        check("/w/alloc-7", &[by]);
        check("/w/alloc-7 (deleted)", &[by]);
        check("/w/alloc", &[]);
        fake.link(7_000, name, "/w/alloc-7/x (deleted)");
        check("/w/alloc-7", &[by]);
        check("/w/alloc-7/x", &[by]);
        fake.link(7_000, name, "/w/alloc-70 (deleted)");
        check("/w/alloc-7", &[]);
        fake.link(7_000, name, "/");
    }
    fake.map(7_000, b"/w/alloc-7 (deleted)");
    check("/w/alloc-7", &["7000 map"]);
}

#[test]
fn names_are_bytes_and_a_newline_is_compared_as_the_kernel_writes_it() {
    let odd = bytes(b"/w/a\n\xff b");
    let fake = fake("bytes");
    let check = |path: &Path, expected: &[&str]| {
        assert_eq!(users(&Pass::new(&fake.proc()), path), expected, "{path:?}");
    };
    fake.link(7_000, "cwd", odd.join("x"));
    check(&odd, &["7000 cwd"]);
    check(&bytes(b"/w/a"), &[]);
    fake.link(7_000, "cwd", "/");
    fake.map(7_000, b"/w/a\\012\xff b/lib.so");
    check(&odd, &["7000 map"]);
    // A name that really has these four characters looks the same: a false alarm only delays.
    check(&bytes(b"/w/a\\012\xff b"), &["7000 map"]);
    // A link is not escaped.
    fake.map(7_000, b"/");
    fake.link(7_000, "cwd", bytes(b"/w/a\\012\xff b"));
    check(&odd, &[]);
}

// B38
#[test]
fn who_cannot_be_read_is_counted_and_occupies_nothing() {
    let fake = fake("unreadable");
    // A link that is none.
    fake.remove(7_000, "cwd");
    fake.write(7_000, "cwd", b"/w/alloc-7");
    // A directory that is none.
    fake.process(7_001, 1, 7_001, 5);
    fake.remove(7_001, "fd");
    fake.write(7_001, "fd", b"");
    // Reading it is an input/output error.
    fake.process(7_002, 1, 7_002, 5);
    fake.remove(7_002, "maps");
    fake.link(7_002, "maps", "/proc/self/mem");
    // A line that never ends.
    fake.process(7_003, 1, 7_003, 5);
    fake.map(7_003, &[b'x'; 40_000]);
    let pass = Pass::new(&fake.proc());
    let found = pass
        .users_of(&target("/w/alloc-7"), &Exclusion::nobody())
        .unwrap();
    assert!(found.users.is_empty() && !found.is_proven_empty());
    assert_eq!((found.unreadable, found.hides), (4, false));
    // Who is left out is not missed, and who was found was seen.
    let excluded: Exclusion = [pid(7_002)].into_iter().collect();
    let found = pass.users_of(&target("/w/alloc-7"), &excluded).unwrap();
    assert_eq!(found.unreadable, 3);
    fake.link(7_001, "cwd", "/w/alloc-7");
    let later = Pass::new(&fake.proc());
    let found = later.users_of(&target("/w/alloc-7"), &excluded).unwrap();
    assert_eq!((found.users.len(), found.unreadable), (1, 2));
}

// B38
#[test]
fn who_vanishes_is_nobody_and_whom_it_left_is_read() {
    let fake = fake("vanishing");
    for name in ["cwd", "fd", "maps"] {
        fake.remove(7_000, name);
    }
    let pass = Pass::new(&fake.proc());
    assert!(users(&pass, "/w/alloc-7").is_empty());
    let found = pass
        .users_of(&target("/w/alloc-7"), &Exclusion::nobody())
        .unwrap();
    assert!(found.is_proven_empty());
    // Its child comes into the list after the list was read.
    let pass = Pass::new(&fake.proc());
    assert!(pass.group(lease_procfs::ProcessGroup::new(pid(9))).is_ok());
    fake.process(7_777, 1, 7_000, 5);
    fake.link(7_777, "cwd", "/w/alloc-7");
    assert_eq!(users(&pass, "/w/alloc-7"), ["7777 cwd"]);
}

// B34
#[test]
fn whoever_comes_into_the_list_while_it_is_read_is_read_although_nobody_ended() {
    let fake = fake("late");
    for asks_twice in [false, true] {
        let pass = Pass::new(&fake.proc());
        assert!(pass.group(lease_procfs::ProcessGroup::new(pid(9))).is_ok());
        // Its parent runs on, and may have left the path since.
        fake.process(7_777, 7_000, 7_000, 5);
        fake.link(7_777, "cwd", "/w/alloc-7");
        if asks_twice {
            let links = pass.users_by_link(&target("/w"), &Exclusion::nobody());
            assert_eq!(links.unwrap().users.len(), 1);
        }
        assert_eq!(users(&pass, "/w/alloc-7"), ["7777 cwd"]);
        std::fs::remove_dir_all(fake.path(7_777, "")).unwrap();
    }
    // One that comes between links and mappings.
    let pass = Pass::new(&fake.proc());
    let links = pass.users_by_link(&target("/w/alloc-7"), &Exclusion::nobody());
    assert!(links.unwrap().is_proven_empty());
    fake.process(7_777, 7_000, 7_000, 5);
    fake.link(7_777, "cwd", "/w/alloc-7");
    assert_eq!(users(&pass, "/w/alloc-7"), ["7777 cwd"]);
}

#[test]
fn a_proc_that_hides_its_first_process_proves_no_emptiness() {
    let fake = fake("hiding");
    std::fs::remove_dir_all(fake.path(1, "")).unwrap();
    let found = Pass::new(&fake.proc())
        .users_of(&target("/w/alloc-7"), &Exclusion::nobody())
        .unwrap();
    assert!(found.hides && found.users.is_empty() && !found.is_proven_empty());
}

#[test]
fn without_a_proc_there_is_an_error_and_no_answer() {
    let place = Place::new("no-proc");
    let proc = ProcFs::at(place.join("none"), lease_procfs::Kernel::detect());
    let pass = Pass::new(&proc);
    for _ in 0..2 {
        let refused = pass.users_of(&target("/w"), &Exclusion::nobody());
        assert!(matches!(refused, Err(ScanError::Unlisted { .. })));
        let group = lease_procfs::ProcessGroup::new(pid(9));
        let refused = pass.group(group).unwrap_err();
        assert!(matches!(refused, ScanError::Unlisted { .. }));
        assert_eq!(refused.code(), lease_core::Code::InvalidHolder);
    }
}

#[test]
fn a_leader_that_exited_shows_what_its_threads_use() {
    let fake = fake("leader");
    for name in ["cwd", "maps"] {
        fake.remove(7_000, name);
    }
    fake.write(7_000, "maps", b"");
    let thread = "task/7005";
    std::fs::create_dir_all(fake.path(7_000, &format!("{thread}/fd"))).unwrap();
    fake.link(7_000, &format!("{thread}/cwd"), "/w/alloc-7");
    fake.link(7_000, &format!("{thread}/fd/3"), "/w/alloc-7/x");
    let line = b"7f00-7f01 r--p 00000000 fd:01 12   /w/alloc-7/y\n";
    fake.write(7_000, &format!("{thread}/maps"), line);
    let pass = Pass::new(&fake.proc());
    assert_eq!(users(&pass, "/w/alloc-7"), ["7000 cwd fd map"]);
}

// B42
#[test]
fn a_target_is_resolved_before_it_is_compared() {
    let place = Place::new("target");
    let real = place.join("w/alloc-7");
    std::fs::create_dir_all(&real).unwrap();
    std::os::unix::fs::symlink(place.join("w"), place.join("home")).unwrap();
    let by_link = place.join("home/alloc-7");
    let resolved = TargetPath::resolve(&by_link).unwrap();
    assert_eq!(resolved, target(&real));
    let fake = fake("resolved");
    fake.link(7_000, "cwd", &real);
    let pass = Pass::new(&fake.proc());
    assert!(users(&pass, &by_link).is_empty(), "nobody is seen under it");
    assert_eq!(users(&pass, resolved.as_path()), ["7000 cwd"]);
    // What was removed is resolved as far as it is there.
    let gone = TargetPath::resolve(by_link.join("x/y")).unwrap();
    assert_eq!(gone, target(real.join("x/y")));
    std::fs::write(real.join("file"), "").unwrap();
    let refused = [
        TargetPath::resolve("home/alloc-7").unwrap_err(),
        TargetPath::new("home/alloc-7").unwrap_err(),
        TargetPath::resolve(bytes(b"/a\0")).unwrap_err(),
        TargetPath::new(place.join("home/../w")).unwrap_err(),
        TargetPath::resolve(by_link.join("x/../y")).unwrap_err(),
        TargetPath::resolve(by_link.join("file/below")).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.code(), lease_core::Code::InvalidTarget, "{error}");
    }
}

/// Counts how often files are opened.
struct Opens(OwnedFd);

impl Opens {
    fn of(files: &[PathBuf]) -> Self {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let watch = inotify::init(flags).unwrap();
        for file in files {
            inotify::add_watch(&watch, file, inotify::WatchFlags::OPEN).unwrap();
        }
        Self(watch)
    }

    fn count(&self) -> usize {
        let mut buffer = [const { MaybeUninit::uninit() }; 4_096];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        let mut count = 0;
        while reader.next().is_ok() {
            count += 1;
        }
        count
    }
}

// B39
#[test]
fn one_pass_reads_once_for_every_target() {
    let fake = fake("once");
    fake.process(7_001, 1, 7_001, 5);
    let dirs = ["/w/alloc-3", "/w/alloc-30/x", "/w/alloc-31 (deleted)"];
    for (fd, path) in dirs.iter().enumerate() {
        fake.link(7_000, &format!("fd/{fd}"), path);
    }
    fake.map(7_001, b"/w/alloc-49/lib.so");
    let lists = Opens::of(&[fake.path(7_000, "fd"), fake.path(7_001, "fd")]);
    let maps = Opens::of(&[fake.path(7_000, "maps"), fake.path(7_001, "maps")]);
    let stats = Opens::of(&[fake.path(7_000, "stat")]);
    let pass = Pass::new(&fake.proc());
    assert_eq!((lists.count(), maps.count(), stats.count()), (0, 0, 0));
    let targets: Vec<_> = (0..50).map(|number| format!("/w/alloc-{number}")).collect();
    let answers: Vec<_> = targets.iter().map(|path| users(&pass, path)).collect();
    assert_eq!(lists.count(), 2);
    // The fake has no mappings for the first, so the second look asks whether it has ended.
    assert_eq!(maps.count(), 2);
    assert_eq!(stats.count(), 0);
    assert_eq!(answers.iter().filter(|users| !users.is_empty()).count(), 4);
    for number in 0..50 {
        let _members = pass
            .group(lease_procfs::ProcessGroup::new(pid(7_000 + number)))
            .unwrap();
    }
    assert_eq!(stats.count(), 1);
    // A new pass reads again, and says the same.
    for (path, answer) in targets.iter().zip(&answers) {
        assert_eq!(&users(&Pass::new(&fake.proc()), path), answer);
    }
    assert_eq!((lists.count(), maps.count()), (100, 100));
    // The pass is as old as its first question.
    fake.link(7_001, "cwd", "/w/alloc-0");
    assert!(users(&pass, "/w/alloc-0").is_empty());
    assert_eq!(users(&Pass::new(&fake.proc()), "/w/alloc-0"), ["7001 cwd"]);
}

#[test]
fn mappings_are_read_only_for_who_asks_for_them() {
    let fake = fake("lazily");
    fake.link(7_000, "cwd", "/w/alloc-7");
    let maps = Opens::of(&[fake.path(7_000, "maps")]);
    let pass = Pass::new(&fake.proc());
    let by_link = pass.users_by_link(&target("/w/alloc-7"), &Exclusion::nobody());
    assert_eq!(by_link.unwrap().users.len(), 1);
    assert_eq!(maps.count(), 0);
    assert_eq!(users(&pass, "/w/alloc-7"), ["7000 cwd"]);
    assert_eq!(maps.count(), 1);
}

#[test]
fn links_are_told_alone_after_everything_was_read() {
    let fake = fake("alone");
    fake.link(7_000, "fd/3", "/w/alloc-7/x");
    fake.map(7_000, b"/w/alloc-7/x");
    fake.process(7_001, 1, 7_001, 5);
    fake.map(7_001, b"/w/alloc-7/x");
    let pass = Pass::new(&fake.proc());
    assert_eq!(users(&pass, "/w/alloc-7"), ["7000 fd map", "7001 map"]);
    fake.link(7_001, "cwd", "/w/alloc-7");
    let found = pass.users_by_link(&target("/w/alloc-7"), &Exclusion::nobody());
    let found = found.unwrap().users;
    assert_eq!((found.len(), found[0].pid), (1, pid(7_000)));
    assert_eq!(found[0].uses.len(), 1);
    assert_eq!(found[0].uses[0].by, UsedBy::Descriptor);
}

// B34
#[test]
fn who_has_no_memory_is_asked_for_no_mappings_and_may_have_left_somebody() {
    let fake = fake("bare");
    // As a thread of the kernel, or somebody at its end.
    fake.remove(7_000, "exe");
    let maps = Opens::of(&[fake.path(7_000, "maps")]);
    for asks_twice in [false, true] {
        let pass = Pass::new(&fake.proc());
        assert!(pass.group(lease_procfs::ProcessGroup::new(pid(9))).is_ok());
        // It comes into the list after the list was read.
        fake.process(7_777, 1, 7_000, 5);
        fake.map(7_777, b"/w/alloc-7/x");
        if asks_twice {
            let links = pass.users_by_link(&target("/w"), &Exclusion::nobody());
            assert!(links.unwrap().is_proven_empty());
        }
        assert_eq!(users(&pass, "/w/alloc-7"), ["7777 map"]);
        assert_eq!(users(&pass, "/"), ["1 cwd", "7000 cwd", "7777 cwd map"]);
        std::fs::remove_dir_all(fake.path(7_777, "")).unwrap();
    }
    assert_eq!(maps.count(), 0);
    // Whoever has a descriptor, another directory or a program is asked.
    fake.map(7_000, b"/w/alloc-7/x");
    fake.link(7_000, "cwd", "/v");
    assert_eq!(users(&Pass::new(&fake.proc()), "/w"), ["7000 map"]);
    fake.link(7_000, "cwd", "/");
    fake.link(7_000, "fd/3", "socket:[7]");
    assert_eq!(users(&Pass::new(&fake.proc()), "/w"), ["7000 map"]);
    fake.remove(7_000, "fd/3");
    fake.link(7_000, "exe", "/x");
    assert_eq!(users(&Pass::new(&fake.proc()), "/w"), ["7000 map"]);
}

// B40
#[test]
fn users_and_their_paths_are_told_without_command_lines() {
    let fake = fake("commands");
    let commands = Opens::of(&[fake.path(7_000, "cmdline"), fake.path(1, "cmdline")]);
    fake.link(7_000, "fd/3", "/w/alloc-7/a.txt");
    let pass = Pass::new(&fake.proc());
    let found = pass
        .users_of(&target("/w/alloc-7"), &Exclusion::nobody())
        .unwrap();
    assert_eq!(found.users[0].pid, pid(7_000));
    assert_eq!(found.users[0].uses[0].path, Path::new("/w/alloc-7/a.txt"));
    assert_eq!(commands.count(), 0);
    assert_eq!(pass.command(pid(7_000)), "sleep 9");
    assert_eq!(commands.count(), 1);
}

// B41
#[test]
fn a_command_line_is_text_that_cannot_hurt() {
    assert_eq!(command_text(b"sleep\x005\x00"), "sleep 5");
    assert_eq!(command_text(b"\x00 a\x00\x00"), "a");
    assert_eq!(command_text(b""), "", "a kernel thread has none");
    assert_eq!(command_text(b"a\xffb"), "a\u{fffd}b");
    assert_eq!(command_text(b"a\x1b[2Jb\nc\td"), "a\\u{1b}[2Jb\\nc\\td");
    assert_eq!(command_text("naïve ☃".as_bytes()), "naïve ☃");
    let long = command_text(&[b'x'; 300]);
    assert_eq!(long.len(), 120);
    assert_eq!(command_text(&[0x1b; 300]).chars().count(), 120);
    let fake = fake("command");
    fake.write(7_000, "cmdline", b"");
    let pass = Pass::new(&fake.proc());
    assert_eq!(pass.command(pid(7_000)), "");
    fake.remove(7_000, "cmdline");
    std::fs::create_dir(fake.path(7_000, "cmdline")).unwrap();
    assert_eq!(pass.command(pid(7_000)), "<unknown>");
    assert_eq!(pass.command(pid(7_009)), "<unknown>");
}

#[test]
fn of_one_process_a_few_uses_are_kept() {
    let fake = fake("many");
    for fd in 0..40 {
        fake.link(7_000, &format!("fd/{fd}"), format!("/w/alloc-7/{fd}"));
    }
    let pass = Pass::new(&fake.proc());
    let found = pass
        .users_of(&target("/w/alloc-7"), &Exclusion::nobody())
        .unwrap();
    assert_eq!(found.users[0].uses.len(), 16);
    fake.link(7_000, "cwd", "/w/alloc-7");
    let later = Pass::new(&fake.proc());
    let found = later.users_of(&target("/w/alloc-7"), &Exclusion::nobody());
    let uses = &found.unwrap().users[0].uses;
    assert_eq!((uses.len(), uses[0].by), (16, UsedBy::WorkingDirectory));
}

/// Any path, as a file system would take it, with parts that look like what the kernel adds.
fn any_path() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(b"a".to_vec()),
        Just(b" ".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\\012".to_vec()),
        Just(b" (deleted)".to_vec()),
        Just(b"/".to_vec()),
        any::<u8>()
            .prop_filter("no NUL", |byte| *byte != 0)
            .prop_map(|byte| vec![byte]),
    ];
    prop::collection::vec(part, 1..12).prop_map(|parts| {
        let mut path = b"/x".to_vec();
        path.extend(parts.concat());
        path
    })
}

/// A line of `maps`, or something like one, or anything without a newline.
fn any_line() -> impl Strategy<Value = Vec<u8>> {
    let column = prop_oneof![
        Just(b"7f00-7f01 r--p 00000000 fd:01 1234 ".to_vec()),
        Just(b"7f5be419000-7fb5be470000 r--p 00000000 fd:01 1234                       ".to_vec()),
        Just(b"7f00-7f01 rw-p 00000000 00:00 0 ".to_vec()),
        Just(b"7f00-7f01 rw-p 00000000 fd:01 ".to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    let path = prop_oneof![
        any_path(),
        Just(b"/usr/lib/libc.so.6".to_vec()),
        Just(b"[heap]".to_vec()),
        Just(Vec::new()),
    ];
    (column, path).prop_map(|(column, path)| {
        let mut line = [column, path].concat();
        line.retain(|&byte| byte != b'\n');
        line
    })
}

/// A line of `mountinfo`, or anything without a newline.
fn any_mount() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(b"/w".to_vec()),
        Just(b"/".to_vec()),
        Just(b"/\\040\\7".to_vec()),
        Just(b"/w//deleted".to_vec()),
        Just(Vec::new()),
        any_path(),
    ];
    let mount = (part.clone(), part).prop_map(|(shown, point)| {
        [
            &b"36 35 98:0 "[..],
            &shown,
            b" ",
            &point,
            b" rw shared:1 - ext4 /dev/a rw",
        ]
        .concat()
    });
    let line = prop_oneof![mount, prop::collection::vec(any::<u8>(), 0..60)];
    line.prop_map(|mut line| {
        line.retain(|&byte| byte != b'\n');
        line
    })
}

fn escaped(path: &[u8]) -> Vec<u8> {
    let newline = |byte: &u8| match byte {
        b'\n' => b"\\012".to_vec(),
        byte => vec![*byte],
    };
    path.iter().flat_map(newline).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_line_of_maps_or_none(line in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(path) = mapped_path(&line) {
            prop_assert!(path.starts_with(b"/") && line.ends_with(path));
        }
    }

    #[test]
    fn any_path_is_read_back_behind_any_padding(path in any_path(), padding in 1_usize..80) {
        let mut line = b"7f00-7f01 r--p 00000000 fd:01 1234".to_vec();
        line.extend(vec![b' '; padding]);
        line.extend(escaped(&path));
        prop_assert_eq!(mapped_path(&line), Some(&*escaped(&path)));
    }

    #[test]
    fn a_line_cut_anywhere_gives_a_beginning_of_its_path(path in any_path(), cut in 0_usize..120) {
        let mut line = b"7f00-7f01 r--p 00000000 fd:01 1234    ".to_vec();
        line.extend(escaped(&path));
        line.truncate(cut);
        if let Some(read) = mapped_path(&line) {
            prop_assert!(escaped(&path).starts_with(read));
        }
    }

    #[test]
    fn a_command_line_is_short_and_has_no_control_character(
        line in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let text = command_text(&line);
        prop_assert!(text.chars().count() <= 120);
        prop_assert!(!text.chars().any(char::is_control));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 64,
        ..ProptestConfig::default()
    })]

    #[test]
    fn of_any_maps_every_line_is_taken_by_itself(lines in prop::collection::vec(any_line(), 0..200)) {
        let fake = fake("lines");
        fake.write(7_000, "maps", &lines.join(&b'\n'));
        let pass = Pass::new(&fake.proc());
        let shows = lines.iter().any(|line| mapped_path(line).is_some());
        let user = users(&pass, "/").pop();
        prop_assert_eq!(user.is_some_and(|user| user.contains("map")), shows);
        for path in lines.iter().filter_map(|line| mapped_path(line)) {
            let Ok(asked) = TargetPath::new(bytes(path)) else { continue };
            // A target is written as the kernel would write it: without empty parts or a slash at its end.
            if asked.as_path().as_os_str().as_encoded_bytes() == path && path != b"/" {
                let found = pass.users_of(&asked, &Exclusion::nobody()).unwrap();
                prop_assert_eq!(found.users.len(), 1);
            }
        }
    }

    #[test]
    fn any_table_of_mounts_is_read_and_loses_nobody(
        ours in prop::collection::vec(any_mount(), 0..20),
        theirs in prop::collection::vec(any_mount(), 0..20),
    ) {
        let fake = fake("tables");
        for (who, inode, table) in [("self", 1, &ours), ("7000", 2, &theirs)] {
            let directory = fake.path(1, "..").join(who);
            std::fs::create_dir_all(directory.join("ns")).unwrap();
            let link = format!("mnt:[{inode}]");
            std::os::unix::fs::symlink(link, directory.join("ns/mnt")).unwrap();
            std::fs::write(directory.join("mountinfo"), table.join(&b'\n')).unwrap();
            // A table that is no table names nothing, here as in `self/status`.
            std::fs::write(directory.join("status"), table.join(&b'\n')).unwrap();
        }
        fake.link(7_000, "root", "/jail");
        fake.link(7_000, "cwd", "/w/alloc-7");
        let found = users(&Pass::new(&fake.proc()), "/w/alloc-7");
        prop_assert_eq!(found, ["7000 cwd"]);
    }

    #[test]
    fn whoever_is_below_a_target_is_found_whatever_the_name(path in any_path(), below in any_path()) {
        let fake = fake("any");
        let used = [&*path, &*below].concat();
        fake.map(7_000, &escaped(&used));
        let root = bytes(&path);
        let asked = TargetPath::new(&root);
        // As a kernel would write it.
        prop_assume!(asked.is_ok_and(|asked| asked.as_path().as_os_str() == root.as_os_str()));
        let pass = Pass::new(&fake.proc());
        prop_assert_eq!(users(&pass, root), ["7000 map"]);
    }
}
