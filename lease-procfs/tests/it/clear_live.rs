//! Whether a runtime is clear, with real processes.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use lease_core::Locality;
use lease_procfs::clear::{Clear, Purpose, RuntimeOccupied, check, observe};
use lease_procfs::{
    Exclusion, Kernel, Namespace, Pid, ProcFs, ProcLiveness, ProcessGroup, ProcessHolder,
    ProcessIdentity, TargetPath,
};

use crate::rig::{has_pidfs, not_run};
use crate::sys::{self, Child};

/// A directory of a test's own.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero();
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clear-{name}-{pid}"));
        fs::create_dir_all(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }

    /// A process that works in the directory, from now on.
    fn worker(&self) -> Child {
        let (mut done, mut report) = std::io::pipe().unwrap();
        let path = self.0.clone();
        let child = Child::fork(move || {
            std::env::set_current_dir(path).unwrap();
            report.write_all(&[1]).unwrap();
            sys::wait_for_ever();
        });
        done.read_exact(&mut [0]).unwrap();
        child
    }

    fn check(
        &self,
        purpose: Purpose,
        declared: &[ProcessHolder],
    ) -> Result<Clear, RuntimeOccupied> {
        self.check_as(&self.0, purpose, declared)
    }

    /// Checks it by another of its names.
    fn check_as(
        &self,
        name: &Path,
        purpose: Purpose,
        declared: &[ProcessHolder],
    ) -> Result<Clear, RuntimeOccupied> {
        let place = TargetPath::new(name).unwrap();
        let liveness = ProcLiveness::system();
        let seen = observe(
            &liveness,
            Locality::ThisMachine,
            declared,
            &place,
            &Exclusion::nobody(),
        );
        check(purpose, &seen)
    }

    #[track_caller]
    fn occupied(&self, purpose: Purpose, declared: &[ProcessHolder]) -> String {
        self.check(purpose, declared).unwrap_err().to_string()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Describes a process, and waits until whatever starts from now on starts in a later tick.
fn described(pid: Pid) -> ProcessIdentity {
    let proc = ProcFs::system();
    let waits = ProcFs::at("/proc", Kernel::detect().without_pidfs());
    ProcessIdentity::of(&waits, pid).unwrap();
    ProcessIdentity::of(&proc, pid).unwrap()
}

fn holder(child: &Child) -> ProcessHolder {
    ProcessHolder::new("cli-a", described(child.pid())).unwrap()
}

#[test]
fn a_terminal_that_was_there_before_does_not_block_and_a_later_one_does() {
    let place = Place::new("terminal");
    let terminal = place.worker();
    described(terminal.pid());
    let mut first = Child::idle();
    let mut second = place.worker();
    let declared = [holder(&first), holder(&second)];
    let (old, pids) = (terminal.pid(), [first.pid(), second.pid()]);
    let alive = format!(
        "runtime is occupied: holder_alive {}, holder_alive {}",
        pids[0], pids[1]
    );
    let said = place.occupied(Purpose::Runtime, &declared);
    assert_eq!(said, format!("{alive}, observed {}", pids[1]));

    for child in [&mut first, &mut second] {
        child.kill();
        child.reap();
    }
    let clear = place.check(Purpose::Runtime, &declared).unwrap();
    assert_eq!(clear.predating, [old]);
    let observed = format!("runtime is occupied: observed {old}");
    assert_eq!(place.occupied(Purpose::Allocation, &declared), observed);
    assert_eq!(place.occupied(Purpose::Runtime, &[]), observed);

    let later = place.worker();
    let said = place.occupied(Purpose::Runtime, &declared);
    assert_eq!(
        said,
        format!("runtime is occupied: observed {}", later.pid())
    );
    drop(later);
    drop(terminal);
    assert_eq!(
        place
            .check(Purpose::Allocation, &declared)
            .unwrap()
            .predating,
        []
    );
}

// B60
#[test]
fn nobody_is_older_than_a_holder_of_another_boot_or_another_clock() {
    let place = Place::new("clock");
    let terminal = place.worker();
    described(terminal.pid());
    let mut child = Child::idle();
    let process = described(child.pid());
    child.kill();
    child.reap();
    let named = |process| [ProcessHolder::new("cli-a", process).unwrap()];
    let clear = place.check(Purpose::Runtime, &named(process)).unwrap();
    assert_eq!(clear.predating, [terminal.pid()]);

    let said = format!("runtime is occupied: observed {}", terminal.pid());
    let mut of_another_boot = process;
    of_another_boot.boot_id = "22222222-2222-4222-8222-222222222222".parse().unwrap();
    assert_eq!(
        place.occupied(Purpose::Runtime, &named(of_another_boot)),
        said
    );
    if has_pidfs("clear_live::nobody_is_older_than_a_holder_of_another_boot_or_another_clock") {
        let mut of_another_clock = process;
        of_another_clock.time_namespace = Some(Namespace::Id(1));
        assert_eq!(
            place.occupied(Purpose::Runtime, &named(of_another_clock)),
            said
        );
    }
}

#[test]
fn a_group_that_outlives_its_holder_blocks() {
    let place = Place::new("group");
    let proc = ProcFs::system();
    let mut leader = Child::idle();
    let raw = |child: &Child| rustix::process::Pid::from_raw(child.pid().get());
    rustix::process::setpgid(raw(&leader), raw(&leader)).unwrap();
    let member = Child::idle();
    rustix::process::setpgid(raw(&member), raw(&leader)).unwrap();
    let mut declared = holder(&leader);
    let group = ProcessGroup::of(&proc, declared.process())
        .unwrap()
        .unwrap();
    declared = declared.with_group(group);
    leader.kill();
    leader.reap();
    let said = format!("runtime is occupied: group_alive {}", leader.pid());
    assert_eq!(
        place.occupied(Purpose::Runtime, std::slice::from_ref(&declared)),
        said
    );
    drop(member);
    assert!(place.check(Purpose::Runtime, &[declared]).is_ok());
}

#[test]
fn a_scan_that_fails_or_sees_too_little_is_doubt_where_that_counts() {
    let place = Place::new("doubt");
    let target = TargetPath::new(&place.0).unwrap();
    let nowhere = ProcFs::at(place.0.join("nowhere"), Kernel::detect());
    let seen = |liveness: &ProcLiveness| {
        observe(
            liveness,
            Locality::ThisMachine,
            &[],
            &target,
            &Exclusion::nobody(),
        )
    };
    assert_eq!(seen(&ProcLiveness::new(nowhere)).scan_doubts, 1);
    assert_eq!(seen(&ProcLiveness::system()).scan_doubts, 0);

    let test = "clear_live::a_scan_that_fails_or_sees_too_little_is_doubt_where_that_counts";
    if !rustix::process::getuid().is_root() {
        return not_run(test, "root", "only root becomes another user");
    }
    let mut other = Child::fork(move || {
        sys::become_user(65_534);
        assert_eq!(seen(&ProcLiveness::system()).scan_doubts, 0);
        assert!(seen(&ProcLiveness::system().require_full_visibility()).scan_doubts > 0);
    });
    assert!(other.reap());
}

// B42
#[test]
fn a_place_is_not_clear_under_whatever_name_it_is_asked_about() {
    let place = Place::new("names");
    let links = Place::new("links");
    let link = links.0.join("work");
    std::os::unix::fs::symlink(&place.0, &link).unwrap();
    let worker = place.worker();
    let doubled = place.0.to_str().unwrap().replace('/', "//");
    let names = [link.clone(), PathBuf::from(doubled), place.0.join("./.")];
    for name in &names {
        let blocked = place.check_as(name, Purpose::Allocation, &[]).unwrap_err();
        let pids: Vec<_> = blocked.blockers.iter().map(|blocker| blocker.pid).collect();
        assert_eq!(pids, [Some(worker.pid())], "{}", name.display());
    }
    drop(worker);
    for name in &names {
        assert!(place.check_as(name, Purpose::Allocation, &[]).is_ok());
    }
    // Where it leads nobody can say.
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&link, &link).unwrap();
    let blocked = place.check_as(&link, Purpose::Allocation, &[]).unwrap_err();
    assert_eq!(blocked.blockers.len(), 1);
    assert_eq!(blocked.blockers[0].pid, None);
}
