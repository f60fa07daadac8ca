//! Who of this process holds the lock of one path, and one attempt to take it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lease_core::{
    Attribution, BusyReason, Contention, KernelSeen, KernelState, RecordClass, Verdict,
    kernel_contention,
};
use lease_procfs::{Matching, Pid, ProcLiveness, ProcessIdentity};

use crate::busy::{self, Adopted, Looks};
use crate::error::{AcquireError, NotAMutex, SqliteError, Step};
use crate::fault::{FaultPoint, Faults};
use crate::fence::{self, Adoption, Look, Names, RecordFile};
use crate::gate::{Gate, Stand};
use crate::health::{Incident, Incidents};
use crate::hold::Granted;
use crate::limits::{COLLISIONS, FREE_IN_VAIN, RECORD_BYTES, REOPENINGS};
use crate::mutex::{Begun, MutexFile};
use crate::options::Settings;
use crate::own;
use crate::path::{Paths, Unique};
use crate::record::{self, LastWriter, Signature};
use crate::sweep::{self, Found, Swept};
use crate::sys::{self, KernelLook, Number};
use crate::token::HoldToken;

/// The lock of one path.
#[derive(Debug, Default)]
pub(crate) struct State {
    mutex: Option<MutexFile>,
    record: RecordFile,
    own: Option<OwnName>,
    hold: Option<Held>,
    /// How many holds there were: the last part of a token.
    holds: u64,
    /// The descriptor that SQLite most likely gets when it opens the mutex.
    likely: Option<Number>,
    /// How many names were given to files in the making.
    unfinished: u64,
    looks: Looks,
    /// The dead claim that was removed, until a grant tells of it.
    reaped: Option<Box<LastWriter>>,
    /// Somebody whose record has none of our fields was seen: it polls, and knows no gate. Counts down
    /// with every poll interval that was left free for nobody.
    peers: u8,
    liveness: Option<ProcLiveness>,
    buffer: Vec<u8>,
    /// How many locks of this path are open.
    pub(crate) locks: usize,
    pub(crate) incidents: Incidents,
    pub(crate) faults: Faults,
}

/// The hold of a lane of this process.
#[derive(Debug)]
struct Held {
    number: u64,
    lane: u64,
    depth: u32,
    token: HoldToken,
    since: Duration,
    /// How long the budget was suspended, and since when it is.
    suspended_for: Duration,
    pauses: u32,
    paused_at: Duration,
}

/// What the end of an entry left.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) depth: u32,
    pub(crate) held_for: Duration,
    pub(crate) suspended_for: Duration,
    pub(crate) outcome: Result<(), (Step, SqliteError)>,
}

/// What this process calls itself in every record.
#[derive(Clone, Debug)]
struct OwnName {
    pid: Pid,
    launch: Arc<str>,
    random: u64,
    process: Option<ProcessIdentity>,
    identity: Option<Arc<str>>,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) paths: &'a Paths,
    pub(crate) settings: &'a Settings,
    pub(crate) lane: u64,
}

/// How much an attempt makes of those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Gives way to whoever stands in line elsewhere.
    InTurn,
    /// Tries whatever the gate says.
    Now,
    /// Was let through by the gate, which is closed behind us.
    Passed,
}

/// What came of one attempt.
#[derive(Debug)]
pub(crate) enum Attempt {
    Granted(u64, Granted),
    Busy(Box<InTheWay>),
}

/// What is in the way.
#[derive(Clone, Debug)]
pub(crate) struct InTheWay {
    pub(crate) reason: BusyReason,
    pub(crate) holder: Option<LastWriter>,
    pub(crate) size: Option<u64>,
    pub(crate) locked_by: Option<Pid>,
    /// Whether anybody has the kernel lock. If nobody has, somebody is just being woken, or the gate
    /// is shut for nothing.
    pub(crate) kernel: KernelLook,
    /// To be told, once.
    pub(crate) incident: Option<Box<Incident>>,
}

/// What was done on the way to a grant.
#[derive(Debug, Default)]
struct Repairs {
    adopted: Option<Adopted>,
    reopened: u32,
}

/// What came of a kernel lock that was taken.
enum Fenced {
    Passed(Held),
    Busy(Box<InTheWay>),
    MutexMoved,
}

impl State {
    pub(crate) const fn mutex(&self) -> Option<&MutexFile> {
        self.mutex.as_ref()
    }

    pub(crate) const fn expects_peers(&self) -> bool {
        self.peers > 0
    }

    /// Sees who came while a poll interval was free.
    pub(crate) fn look_for_peers(&mut self, paths: &Paths) {
        self.peers = self.peers.saturating_sub(1);
        self.note_peer(fence::last_writer(&paths.record).as_ref());
    }

    fn note_peer(&mut self, holder: Option<&LastWriter>) {
        if holder.is_some_and(|holder| holder.identity.is_none()) {
            self.peers = FREE_IN_VAIN;
        }
    }

    /// Keeps the gate that let the present hold through. Returns one that is not needed.
    pub(crate) fn keep_gate(&mut self, passed: Stand) -> Option<Gate> {
        self.record.keep_gate(passed)
    }

    /// Tries once; never waits.
    pub(crate) fn attempt(
        &mut self,
        request: Request<'_>,
        manner: Manner,
    ) -> Result<Attempt, AcquireError> {
        if let Some((number, granted)) = self.enter_again(request.lane) {
            return Ok(Attempt::Granted(number, granted));
        }
        if self.hold.is_some() {
            return Ok(Attempt::Busy(self.busy(request)));
        }
        self.ready(request.paths)?;
        if manner != Manner::Passed {
            let is_closed = self.record.close_gate(&request.paths.record);
            if is_closed == Some(false) && manner == Manner::InTurn {
                return Ok(Attempt::Busy(self.busy(request)));
            }
        }
        let outcome = self.attempt_kernel(request);
        if !matches!(outcome, Ok(Attempt::Granted(..))) {
            self.record.open_gate();
        }
        outcome
    }

    /// Tries the kernel lock, and signs.
    fn attempt_kernel(&mut self, request: Request<'_>) -> Result<Attempt, AcquireError> {
        let mut repairs = Repairs::default();
        for _again in 0..=REOPENINGS {
            if self.begin(request.paths)? == Begun::Busy {
                return Ok(Attempt::Busy(self.busy(request)));
            }
            // From here on the kernel lock is ours, and every way out but the grant gives it back.
            match self.under_lock(request, &mut repairs) {
                Ok(Fenced::Passed(held)) => return Ok(self.granted(held, repairs)),
                Ok(Fenced::Busy(in_the_way)) => {
                    self.give_back()
                        .map_err(|unfree| given_back(request.paths, unfree))?;
                    return Ok(Attempt::Busy(in_the_way));
                }
                Ok(Fenced::MutexMoved) => {
                    // Whether COMMIT works on a file that is gone does not matter: it is closed.
                    let _outcome = self.give_back();
                    self.mutex = None;
                    self.ready(request.paths)?;
                    repairs.reopened = repairs.reopened.saturating_add(1);
                }
                Err(error) => {
                    // The first error is the one that tells why.
                    let _outcome = self.give_back();
                    if matches!(error, AcquireError::NotAMutex { .. }) {
                        self.mutex = None;
                    }
                    return Err(error);
                }
            }
        }
        Err(AcquireError::NotAMutex {
            path: request.paths.mutex.clone(),
            why: NotAMutex::Replaced,
        })
    }

    /// Removes the record of a process that is proven gone, under the kernel lock.
    pub(crate) fn sweep(&mut self, paths: &Paths) -> Swept {
        let liveness = self.liveness.get_or_insert_with(own::liveness);
        let looked = sweep::look(&paths.record, liveness);
        self.likely = self.likely.or(looked.number);
        let found = match looked.outcome {
            Ok(found) => found,
            Err(kept) => return kept,
        };
        if self.hold.is_some() {
            return Swept::KeptUnlocked;
        }
        let was_open = self.mutex.is_some();
        if !was_open {
            self.mutex = MutexFile::open_if_there(paths, None).ok().flatten();
        }
        let swept = self.sweep_locked(paths, &found);
        if !was_open || !self.mutex.as_ref().is_some_and(MutexFile::is_free) {
            self.mutex = None;
        }
        swept
    }

    fn sweep_locked(&mut self, paths: &Paths, found: &Found) -> Swept {
        if !matches!(self.begin(paths), Ok(Begun::Taken)) {
            return Swept::KeptUnlocked;
        }
        let unique = self.unique();
        let Some(mutex) = &self.mutex else {
            return Swept::KeptUnlocked;
        };
        let swept = match (mutex.has_moved(), unique) {
            (Ok(false), Ok(unique)) => sweep::remove(paths, unique, found, &mut self.faults),
            _ => Swept::KeptUnlocked,
        };
        // If it fails, the caller closes the connection.
        let _outcome = mutex.roll_back();
        swept
    }

    /// Enters the hold of a lane again, if the lane has one.
    pub(crate) fn enter_again(&mut self, lane: u64) -> Option<(u64, Granted)> {
        let held = self.hold.as_mut().filter(|held| held.lane == lane)?;
        held.depth = held.depth.saturating_add(1);
        Some((held.number, held.granted()))
    }

    /// Adds an entry to a hold, and returns how many there are.
    pub(crate) fn enter(&mut self, number: u64) -> u32 {
        let held = self.hold.as_mut().filter(|held| held.number == number);
        held.map_or(0, |held| {
            held.depth = held.depth.saturating_add(1);
            held.depth
        })
    }

    /// Ends an entry of a hold, and the hold with the last one.
    pub(crate) fn leave(&mut self, number: u64, now: Duration) -> Left {
        let mut left = Left {
            depth: 0,
            held_for: Duration::ZERO,
            suspended_for: Duration::ZERO,
            outcome: Ok(()),
        };
        let Some(held) = self.hold.as_mut().filter(|held| held.number == number) else {
            return left;
        };
        held.depth = held.depth.saturating_sub(1);
        left.depth = held.depth;
        if held.depth > 0 {
            return left;
        }
        left.held_for = now.saturating_sub(held.since);
        left.suspended_for = held.suspended_for;
        self.hold = None;
        left.outcome = self.give_back();
        self.record.open_gate();
        left
    }

    /// Closes every file.
    #[cfg(feature = "test-util")]
    pub(crate) fn close(&mut self) {
        self.mutex = None;
        self.record = RecordFile::default();
    }

    /// Returns how many entries the present hold has.
    pub(crate) fn depth(&self) -> u32 {
        self.hold.as_ref().map_or(0, |held| held.depth)
    }

    /// Suspends the budget of a hold.
    pub(crate) fn pause(&mut self, number: u64, now: Duration) {
        if let Some(held) = self.hold.as_mut().filter(|held| held.number == number) {
            if held.pauses == 0 {
                held.paused_at = now;
            }
            held.pauses = held.pauses.saturating_add(1);
        }
    }

    /// Ends a pause; the budget counts again after the last one.
    pub(crate) fn resume(&mut self, number: u64, now: Duration) {
        if let Some(held) = self.hold.as_mut().filter(|held| held.number == number) {
            held.pauses = held.pauses.saturating_sub(1);
            if held.pauses == 0 {
                let paused_for = now.saturating_sub(held.paused_at);
                held.suspended_for = held.suspended_for.saturating_add(paused_for);
            }
        }
    }

    /// Opens the mutex if it is not open. Nothing on the fast path.
    fn ready(&mut self, paths: &Paths) -> Result<(), AcquireError> {
        if self.mutex.is_some() {
            return Ok(());
        }
        let unique = self.unique()?;
        let mutex = MutexFile::open(paths, unique, self.likely)?;
        self.likely = mutex.number();
        self.mutex = Some(mutex);
        Ok(())
    }

    /// Returns the last part of a name that no other file has.
    fn unique(&mut self) -> Result<Unique, AcquireError> {
        self.unfinished = self.unfinished.saturating_add(1);
        Ok(Unique {
            random: self.own_name()?.random,
            number: self.unfinished,
        })
    }

    /// Tries the kernel lock.
    ///
    /// SQLite takes it in steps, and two who try at once can refuse each other: busy, and nobody has
    /// it. So whoever is refused by nobody tries again, a few times.
    fn begin(&mut self, paths: &Paths) -> Result<Begun, AcquireError> {
        let begun = self.try_begin(paths);
        if begun.is_err() {
            // Part of the lock may have been taken. It goes with the connection.
            self.mutex = None;
        }
        begun
    }

    fn try_begin(&mut self, paths: &Paths) -> Result<Begun, AcquireError> {
        let Some(mutex) = &self.mutex else {
            return Ok(Begun::Busy);
        };
        for _again in 0..COLLISIONS {
            let begun = mutex.begin(&paths.record, &mut self.faults)?;
            if begun == Begun::Taken || mutex.kernel_look()? != KernelLook::Free {
                return Ok(begun);
            }
        }
        Ok(Begun::Busy)
    }

    /// Looks at both files under the kernel lock, and signs.
    fn under_lock(
        &mut self,
        request: Request<'_>,
        repairs: &mut Repairs,
    ) -> Result<Fenced, AcquireError> {
        let paths = request.paths;
        let fence = |source| io(&paths.mutex, Step::Fence, source);
        self.faults.hit(FaultPoint::Moved).map_err(fence)?;
        let moved = self.mutex.as_ref().map(MutexFile::has_moved);
        if moved.transpose().map_err(fence)?.unwrap_or(true) {
            return Ok(Fenced::MutexMoved);
        }
        if let Some(mutex) = &self.mutex {
            mutex.check_changed()?;
        }
        let failed = |(step, source)| io(&paths.record, step, source);
        let at = |step| move |source| (step, source);
        let hit = self.faults.hit(FaultPoint::Fence);
        hit.map_err(at(Step::Fence)).map_err(failed)?;
        let look = self
            .record
            .look(&paths.record, request.settings.legacy, &mut self.faults)
            .map_err(failed)?;
        self.note_peer(look.writer.as_ref());
        let seen = KernelSeen {
            verdict: None,
            lock: KernelState::Taken,
            record: look.class,
            same_file: look.same_file,
            steady: false,
        };
        match kernel_contention(&seen) {
            Contention::Grant { adopt: false, .. } => {}
            Contention::Grant { adopt: true, reap } => {
                if let Some(lost) = self.adopt(request, look, reap, repairs)? {
                    return Ok(lost);
                }
            }
            Contention::Busy(reason) => {
                let in_the_way = self.busy_by_claim(look, reason, request.settings);
                return Ok(Fenced::Busy(Box::new(in_the_way)));
            }
        }
        let held = self.sign(request).map_err(failed)?;
        if !self.record.has_gate() {
            // The record is a new one, and so is its gate.
            let _closed = self.record.close_gate(&paths.record);
        }
        Ok(Fenced::Passed(held))
    }

    /// Makes the record at the path our own. Returns what came between, if that was not possible.
    fn adopt(
        &mut self,
        request: Request<'_>,
        look: Look,
        reap: bool,
        repairs: &mut Repairs,
    ) -> Result<Option<Fenced>, AcquireError> {
        let (claim, unique) = if reap {
            let unique = request.paths.unfinished_record(self.unique()?);
            (look.writer.clone().map(Box::new), Some(unique))
        } else {
            (None, None)
        };
        let path = &*request.paths.record;
        let unique = unique.as_deref();
        let names = Names { path, unique };
        let outcome = self.record.adopt(names, look, reap, &mut self.faults);
        match outcome {
            Ok(Adoption::Done(adopted)) => {
                repairs.adopted = adopted;
                self.reaped = claim.or_else(|| self.reaped.take());
                Ok(None)
            }
            Ok(Adoption::Lost) => {
                let lost = self.busy_at_record(RecordClass::Changing, request);
                Ok(Some(Fenced::Busy(lost)))
            }
            // The directory went under the lock, and the mutex with it.
            Err((_, error)) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Some(Fenced::MutexMoved))
            }
            Err((step, source)) => Err(io(path, step, source)),
        }
    }

    /// Writes the record.
    fn sign(&mut self, request: Request<'_>) -> Result<Held, (Step, std::io::Error)> {
        let write = |source| (Step::Write, source);
        self.faults.hit(FaultPoint::Write).map_err(write)?;
        let Some(own) = &self.own else {
            return Err(write(std::io::ErrorKind::NotFound.into()));
        };
        let number = self.holds.saturating_add(1);
        let token = HoldToken::new(&own.launch, number);
        let settings = request.settings;
        let signature = Signature {
            pid: own.pid,
            thread: request.lane,
            token: &token,
            acquired_at_ms: settings.timing.wall_ms(),
            role: &settings.role,
            argv0: &settings.argv0,
            purpose: settings.purpose(),
            label: &settings.label,
            identity: own.identity.as_deref(),
        };
        self.buffer.reserve(RECORD_BYTES);
        record::render(&signature, &mut self.buffer);
        self.record
            .write(&self.buffer, &mut self.faults)
            .map_err(write)?;
        self.holds = number;
        Ok(Held {
            number,
            lane: request.lane,
            depth: 1,
            token,
            since: settings.timing.now(),
            suspended_for: Duration::ZERO,
            pauses: 0,
            paused_at: Duration::ZERO,
        })
    }

    fn granted(&mut self, held: Held, repairs: Repairs) -> Attempt {
        self.looks.forget();
        let number = held.number;
        let granted = Granted {
            adopted: repairs.adopted,
            reaped: self.reaped.take(),
            reopened: repairs.reopened,
            ..held.granted()
        };
        self.hold = Some(held);
        Attempt::Granted(number, granted)
    }

    /// Gives the kernel lock back; afterwards it is free, whatever is returned.
    fn give_back(&mut self) -> Result<(), (Step, SqliteError)> {
        let Some(mutex) = &self.mutex else {
            return Ok(());
        };
        let outcome = mutex.commit(&mut self.faults);
        if !mutex.is_free() {
            self.mutex = None;
        }
        outcome.map_err(|(step, error)| (step, SqliteError::from(error)))
    }

    /// Asks the kernel who has the lock.
    pub(crate) fn kernel_look(&self) -> KernelLook {
        // A process is not shown its own locks.
        match &self.mutex {
            _ if self.hold.is_some() => KernelLook::Held(None),
            Some(mutex) => mutex.kernel_look().unwrap_or(KernelLook::Unseen),
            None => KernelLook::Unseen,
        }
    }

    /// Says who is in the way of the kernel lock, as far as can be seen now.
    pub(crate) fn busy(&mut self, request: Request<'_>) -> Box<InTheWay> {
        let Request {
            paths, settings, ..
        } = request;
        let holder = fence::last_writer(&paths.record);
        self.note_peer(holder.as_ref());
        let kernel = self.kernel_look();
        let locked_by = match kernel {
            KernelLook::Held(pid) => pid,
            KernelLook::Free | KernelLook::Unseen => None,
        };
        let now = settings.timing.now();
        // Whoever wrote a record and let go is no holder, however often it is looked at.
        let is_same =
            kernel != KernelLook::Free && self.looks.look(holder.as_ref(), now, settings.poll);
        // The kernel's word goes before a name plate.
        let contradicts =
            locked_by.is_some_and(|pid| holder.as_ref().is_some_and(|holder| holder.pid != pid));
        let verdict = holder.as_ref().map(|holder| self.judge(holder));
        let seen = KernelSeen {
            verdict,
            lock: KernelState::Busy,
            record: RecordClass::Current,
            same_file: false,
            // Our own hold has signed before anybody could look.
            steady: self.hold.is_some() || (is_same && !contradicts),
        };
        let reason = reason(&seen);
        let is_confirmed = reason == BusyReason::Kernel(Attribution::Confirmed);
        let incident = holder
            .as_ref()
            .filter(|_| is_confirmed && self.hold.is_none())
            .and_then(|holder| self.incident(holder, reason, settings));
        Box::new(InTheWay {
            reason,
            holder,
            size: None,
            locked_by,
            kernel,
            incident,
        })
    }

    /// A claim in the way is attributed like a kernel lock: by two looks.
    fn busy_by_claim(&mut self, look: Look, reason: BusyReason, settings: &Settings) -> InTheWay {
        let now = settings.timing.now();
        let is_same = self.looks.look(look.writer.as_ref(), now, settings.poll);
        let incident = look
            .writer
            .as_ref()
            .filter(|_| is_same && reason == BusyReason::LegacyAlive)
            .and_then(|claim| self.incident(claim, reason, settings));
        InTheWay {
            reason,
            holder: look.writer,
            size: look.size,
            locked_by: None,
            kernel: KernelLook::Unseen,
            incident,
        }
    }

    fn incident(
        &mut self,
        holder: &LastWriter,
        reason: BusyReason,
        settings: &Settings,
    ) -> Option<Box<Incident>> {
        if self.own.as_ref().is_some_and(|own| own.is(holder)) {
            return None;
        }
        let wall_ms = settings.timing.wall_ms();
        self.incidents
            .look(holder, reason, wall_ms, settings.foreign_hold)
    }

    fn busy_at_record(&self, record: RecordClass, request: Request<'_>) -> Box<InTheWay> {
        let seen = KernelSeen {
            verdict: None,
            lock: KernelState::Taken,
            record,
            same_file: false,
            steady: false,
        };
        Box::new(InTheWay {
            reason: reason(&seen),
            holder: fence::last_writer(&request.paths.record),
            size: None,
            locked_by: None,
            kernel: KernelLook::Unseen,
            incident: None,
        })
    }

    fn judge(&mut self, holder: &LastWriter) -> Verdict {
        let liveness = self.liveness.get_or_insert_with(own::liveness);
        busy::judge(liveness, holder)
    }

    fn own_name(&mut self) -> Result<&OwnName, AcquireError> {
        if self.own.is_none() {
            self.own = Some(OwnName::new()?);
        }
        self.own
            .as_ref()
            .ok_or_else(|| no_name(std::io::ErrorKind::NotFound.into()))
    }
}

impl Held {
    fn granted(&self) -> Granted {
        Granted {
            token: self.token,
            depth: self.depth,
            waited: Duration::ZERO,
            contended: false,
            adopted: None,
            reaped: None,
            reopened: 0,
        }
    }
}

impl OwnName {
    /// Tells whether a record is of this very process.
    fn is(&self, holder: &LastWriter) -> bool {
        match (&self.process, &holder.identity) {
            (Some(own), Some(theirs)) => !matches!(own.matches(theirs), Matching::Different(_)),
            (None, _) | (_, None) => self.pid == holder.pid,
        }
    }

    fn new() -> Result<Self, AcquireError> {
        let identity = own::identity();
        let pid = match &identity {
            Some(identity) => identity.pid,
            None => sys::own_pid().ok_or_else(|| no_name(std::io::ErrorKind::NotFound.into()))?,
        };
        let thread = crate::hold::Lane::of_this_thread().number();
        let random = own::random().map_err(no_name)?;
        Ok(Self {
            pid,
            launch: Arc::from(format!("{pid}:{thread}:{random:016x}")),
            random,
            process: identity,
            identity: own::identity_text(),
        })
    }
}

fn no_name(source: std::io::Error) -> AcquireError {
    io(Path::new("/proc/self"), Step::Open, source)
}

/// A kernel lock that is not granted always has a reason.
fn reason(seen: &KernelSeen) -> BusyReason {
    match kernel_contention(seen) {
        Contention::Busy(reason) => reason,
        Contention::Grant { .. } => BusyReason::LostRace,
    }
}

fn io(path: &Path, step: Step, source: std::io::Error) -> AcquireError {
    AcquireError::Io {
        path: path.to_owned(),
        step,
        source,
    }
}

fn given_back(paths: &Paths, (step, source): (Step, SqliteError)) -> AcquireError {
    AcquireError::Sqlite {
        path: paths.mutex.clone(),
        step,
        source,
    }
}
