//! Which of the mounts over each other shows a place: users are found by its names, and by no other's.

use std::fs;
use std::path::Path;

use lease_procfs::{Exclusion, Pass, ProcLiveness, TargetPath};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

use crate::crew::{BOTH, FakeProc, Place, ask, told};
use crate::occupancy::{dead, user};
use crate::rig::{Missing, Space, isolated};
use crate::sys::Child;

/// Tells who uses a target if one process works in `at` and these are our mounts, each of them with
/// number, parent, device and place.
fn seen(mounts: &[&str], target: &str, at: &str) -> &'static str {
    let lines = mounts.iter().map(|mount| {
        let [id, parent, device, point] =
            <[&str; 4]>::try_from(mount.split(' ').collect::<Vec<_>>()).unwrap();
        format!("{id} {parent} {device} / {point} rw - ext4 none rw\n")
    });
    let table: String = lines.collect();
    seen_as(target, at, |file| fs::write(file, &table).unwrap())
}

/// The same, where `mount` makes the file of our mounts.
fn seen_as(target: &str, at: &str, mount: impl FnOnce(&Path)) -> &'static str {
    let fake = FakeProc::new("mounts");
    fake.process(7_000, 1, 7_000, 5);
    fake.link(7_000, "cwd", at);
    let directory = fake.path(1, "..").join("self");
    fs::create_dir_all(&directory).unwrap();
    mount(&directory.join("mountinfo"));
    let target = TargetPath::new(target).unwrap();
    let found = Pass::new(&fake.proc()).users_of(&target, &Exclusion::nobody());
    let found = found.unwrap();
    assert_eq!(found.obscured, found.unreadable);
    match (found.users.len(), found.obscured) {
        (0, 0) => "unused",
        (0, _) => "doubt",
        _ => "used",
    }
}

// B34, B38
#[test]
fn where_our_mounts_cannot_all_be_read_everybody_is_doubt() {
    let root = "20 1 8:1 / / rw - ext4 none rw\n";
    let more = "30 20 0:30 / /m rw - ext4 none rw\n";
    for (size, of_others) in [(Some(1), "unused"), (Some(16), "doubt"), (None, "doubt")] {
        let mount = |file: &Path| match size {
            Some(mib) => {
                let lines = more.repeat((mib << 20) / more.len() + 1);
                fs::write(file, [root, &lines].concat()).unwrap();
            }
            // What cannot be read at all.
            None => fs::create_dir(file).unwrap(),
        };
        assert_eq!(seen_as("/t", "/x", mount), of_others);
        assert_eq!(seen_as("/t", "/t", mount), "used");
    }
}

// B34
#[test]
fn a_mount_below_one_that_came_later_shows_nothing() {
    let table = [
        "20 1 8:1 /",
        "30 20 0:30 /m/x",
        "31 20 0:31 /m",
        "32 20 0:31 /new",
        "33 20 0:30 /old",
    ];
    assert_eq!(seen(&table, "/m/x/t", "/new/x/t"), "used");
    assert_eq!(seen(&table, "/m/x/t", "/old/t"), "unused");
    // Whoever has been in it since before is shown by the same name as who is in the new one.
    assert_eq!(seen(&table, "/m/x/t", "/m/x/t"), "used");
    assert_eq!(seen(&table, "/old/t", "/m/x/t"), "used");
    // What is mounted in the new one shows.
    let again = [table.as_slice(), &["34 31 0:30 /m/x"]].concat();
    assert_eq!(seen(&again, "/m/x/t", "/new/x/t"), "unused");
    assert_eq!(seen(&again, "/m/x/t", "/old/t"), "used");
}

// B34
#[test]
fn of_mounts_in_one_place_the_topmost_shows_wherever_it_stands_in_the_table() {
    let table = [
        "20 1 8:1 /",
        "32 20 0:31 /new",
        "33 20 0:30 /old",
        "31 30 0:31 /m",
        "30 20 0:30 /m",
    ];
    assert_eq!(seen(&table, "/m/t", "/new/t"), "used");
    assert_eq!(seen(&table, "/m/t", "/old/t"), "unused");
    // A line that is read twice is one.
    let twice = [table.as_slice(), &table].concat();
    assert_eq!(seen(&twice, "/m/t", "/new/t"), "used");
    assert_eq!(seen(&twice, "/m/t", "/old/t"), "unused");
}

// B34
#[test]
fn a_mount_over_the_root_shows_nothing() {
    let table = [
        "20 1 8:1 /",
        "31 20 0:31 /",
        "32 20 0:31 /b",
        "33 20 8:1 /r",
    ];
    assert_eq!(seen(&table, "/t", "/r/t"), "used");
    assert_eq!(seen(&table, "/t", "/b/t"), "unused");
    // The first mount of all is its own parent.
    let first = ["1 1 0:2 /", "31 1 0:31 /m", "32 1 0:31 /b"];
    assert_eq!(seen(&first, "/m/t", "/b/t"), "used");
    assert_eq!(seen(&first, "/m/t", "/x"), "unused");
}

// B34, B38
#[test]
fn where_our_mounts_do_not_tell_what_shows_a_place_everybody_is_doubt() {
    // Below a root that is no mount, as `chroot` makes it, only what is mounted is told.
    let jail = ["40 20 0:5 /proc", "41 20 0:30 /d", "42 20 0:30 /e"];
    assert_eq!(seen(&jail, "/t", "/x"), "doubt");
    assert_eq!(seen(&jail, "/t", "/t"), "used");
    assert_eq!(seen(&jail, "/d/t", "/e/t"), "used");
    assert_eq!(seen(&jail, "/d/t", "/x"), "unused");
    let over_it = [jail.as_slice(), &["43 20 0:31 /"]].concat();
    assert_eq!(seen(&over_it, "/t", "/x"), "doubt");
    for broken in [
        // A parent that is not there.
        ["20 1 8:1 /", "31 99 0:31 /m"],
        // A circle.
        ["20 1 8:1 /", "31 31 0:31 /m"],
        // A parent in another place.
        ["20 31 8:1 /", "31 1 0:31 /n"],
        // Two in one place.
        ["20 1 8:1 /", "21 1 0:31 /"],
        // A number that is none.
        ["20 1 8:1 /", "x 20 0:31 /m"],
        ["x 1 8:1 /", "31 20 0:31 /n"],
    ] {
        assert_eq!(seen(&broken, "/m/t", "/x"), "doubt", "{broken:?}");
        assert_eq!(seen(&broken, "/m/t", "/m/t"), "used", "{broken:?}");
    }
    let circles = [
        vec!["20 1 8:1 /", "31 32 0:31 /m", "32 31 0:32 /m"],
        vec!["20 1 8:1 /", "31 20 0:31 /m/t", "32 31 0:32 /m"],
        vec!["20 1 8:1 /", "31 20 0:31 /m", "32 20 0:32 /m"],
        vec![
            "20 1 8:1 /",
            "31 20 0:31 /m",
            "32 31 0:32 /m",
            "31 32 0:31 /m",
        ],
    ];
    for circle in circles {
        assert_eq!(seen(&circle, "/m/t", "/x"), "doubt", "{circle:?}");
        // Elsewhere it does not matter.
        assert_eq!(seen(&circle, "/n/t", "/x"), "unused", "{circle:?}");
    }
    // Without any table a target has the name it was given.
    assert_eq!(seen(&[], "/t", "/x"), "unused");
}

/// Tells whether somebody who works in `at` uses the target.
#[track_caller]
fn is_told(target: &Path, at: &Path, is_used: bool) {
    let inside = {
        let at = at.to_owned();
        user(move || std::env::set_current_dir(at).unwrap())
    };
    let liveness = ProcLiveness::system();
    let holder = dead(liveness.proc());
    let expected = if is_used {
        format!("occupied: path_in_use {} (cwd)", inside.pid)
    } else {
        "dead: no_such_process".to_owned()
    };
    let verdict = ask(&liveness, &holder, BOTH, Some(target));
    assert_eq!(told(&verdict), expected);
}

fn bind(shown: &Path, point: &Path) -> Result<(), Missing> {
    mount_bind(shown, point).map_err(|errno| ("mount-namespaces", errno.to_string()))
}

// B34
#[test]
fn a_user_is_found_where_a_mount_hides_another_one() {
    let name = "mounts::a_user_is_found_where_a_mount_hides_another_one";
    isolated(name, Space::Pid, || {
        let place = Place::new("hidden");
        let [old, new, point] = ["old", "new", "m"].map(|part| place.join(part));
        for directory in [old.join("t"), new.join("x/t"), point.join("x")] {
            fs::create_dir_all(directory).unwrap();
        }
        bind(&old, &point.join("x"))?;
        bind(&new, &point)?;
        let target = point.join("x/t");
        is_told(&target, &target, true);
        is_told(&target, &new.join("x/t"), true);
        is_told(&target, &old.join("t"), false);
        // The lower one comes to light.
        for point in [&point, &point.join("x")] {
            unmount(point, UnmountFlags::DETACH).unwrap();
        }
        Ok(())
    });
}

// B34
#[test]
fn a_user_is_found_under_a_root_with_a_mount_over_it() {
    let name = "mounts::a_user_is_found_under_a_root_with_a_mount_over_it";
    isolated(name, Space::Pid, || {
        let place = Place::new("over");
        let [target, point] = ["t", "m"].map(|part| place.join(part));
        fs::create_dir(&target).unwrap();
        fs::create_dir(&point).unwrap();
        bind(&target, &point)?;
        mount("none", "/", "tmpfs", MountFlags::empty(), None)
            .map_err(|errno| ("tmpfs", errno.to_string()))?;
        // A path begins below what is mounted over the root.
        assert!(target.is_dir());
        is_told(&target, &point, true);
        is_told(&target, place.path(), false);
        unmount(&point, UnmountFlags::DETACH).unwrap();
        Ok(())
    });
}

// B34, B38
#[test]
fn below_a_root_that_is_no_mount_nobody_is_known_by_name() {
    let name = "mounts::below_a_root_that_is_no_mount_nobody_is_known_by_name";
    isolated(name, Space::Pid, || {
        let place = Place::new("jail");
        let [target, proc, point] = ["jail/t", "jail/proc", "m"].map(|part| place.join(part));
        for directory in [&target, &proc, &point] {
            fs::create_dir_all(directory).unwrap();
        }
        bind(Path::new("/proc"), &proc)?;
        bind(&target, &point)?;
        let inside = user(|| std::env::set_current_dir(&point).unwrap());
        let mut jailed = Child::fork(|| {
            std::os::unix::fs::chroot(place.join("jail")).unwrap();
            let liveness = ProcLiveness::system();
            let holder = dead(liveness.proc());
            let verdict = || told(&ask(&liveness, &holder, BOTH, Some(Path::new("/t"))));
            assert_eq!(verdict(), "unknown: occupancy_hidden");
            let known = user(|| std::env::set_current_dir("/t").unwrap());
            let expected = format!("occupied: path_in_use {} (cwd)", known.pid);
            assert_eq!(verdict(), expected);
        });
        let holds = jailed.reap();
        drop(inside);
        for point in [&proc, &point] {
            unmount(point, UnmountFlags::DETACH).unwrap();
        }
        assert!(holds, "the assertions in the jail hold");
        Ok(())
    });
}
