//! A store that commits only what was decided on what is still there, and the clients that use it.
//!
//! It stands for every backend that cannot hold a lock between fetching and committing: cells have the
//! number of the commit that wrote them, and a commit compares all that its decision looked at.

use std::collections::BTreeMap;

use lease_core::{
    Action, AdoptProof, Answer, At, AuthorityId, By, Cell, Cells, Change, Decision, Disposition,
    Fresh, Generation, Lease, LeaseId, Moment, OpId, Provenance, ResourceKey, Scene, Seen, Seq,
    SessionHolder, Slot, WaiterId, decide,
};

use super::world::{Place, Setup, Sight, answer, over};

/// What a commit compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    /// Everything the decision looked at: what is held, what is free, who waits.
    Scene,
    /// The cell asked for and nothing else. This is wrong, to show that the checker sees it.
    OwnCell,
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Acquire {
        key: Place,
        /// Joins the queue if it is refused.
        wait: bool,
        /// Brings the answer that every holder it read of is dead.
        dead: bool,
    },
    /// The client's own request with this number in the queue, once more.
    Retry(WaiterId),
    Touch(Place),
    Begin(Place),
    End(Place, Result<(), Disposition>),
    Release(Place),
    Adopt(Place, Place),
    Disconnect,
    Sweep,
}

/// A request in the store's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queued {
    pub(super) id: WaiterId,
    pub(super) who: Place,
    pub(super) key: Place,
}

/// A cell with the commit that wrote it.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) cell: Cell<SessionHolder>,
    pub(super) by: u64,
}

/// What a client read, and wants to do on it.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) ask: Ask,
    pub(super) now: u64,
    pub(super) cells: BTreeMap<ResourceKey, Written>,
    pub(super) queue: Vec<Queued>,
    /// Gathered after the first reading, and kept when it has to be done again.
    pub(super) answers: Vec<Answer>,
    pub(super) at: Option<At>,
}

/// The store, the time, and its clients.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) cells: BTreeMap<ResourceKey, Written>,
    pub(super) queue: Vec<Queued>,
    pub(super) revision: u64,
    pub(super) now: u64,
    /// What each client has read and not committed.
    pub(super) reading: Vec<Option<Read>>,
    /// The last token that each client knows, by resource.
    pub(super) known: Vec<Vec<Option<At>>>,
}

/// What became of a cell since it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Free,
    Same,
    Gone,
}

/// What a commit did.
#[derive(Clone, Debug, Default)]
pub(super) struct Committed {
    pub(super) changes: Vec<Change>,
    /// Who was granted what.
    pub(super) granted: Option<(Place, Place, Provenance)>,
}

/// The authority of every store.
const AUTHORITY: AuthorityId = AuthorityId::from_bytes([0xA2; 16]);

/// The one operation of a lease.
const OPERATION: OpId = OpId::from_bytes([1; 16]);

impl Shared {
    pub(super) fn new(setup: &Setup) -> Self {
        let writers = setup.writers.len();
        Self {
            cells: BTreeMap::new(),
            queue: Vec::new(),
            revision: 0,
            now: 100,
            reading: vec![None; writers],
            known: vec![vec![None; setup.keys.len()]; writers],
        }
    }

    pub(super) fn lease(&self, setup: &Setup, key: Place) -> Option<&Lease<SessionHolder>> {
        self.cells.get(setup.keys.get(key)?)?.cell.lease()
    }

    pub(super) fn leases<'a>(
        &'a self,
        setup: &'a Setup,
    ) -> impl Iterator<Item = (Place, &'a Lease<SessionHolder>)> {
        let lease = |place| Some((place, self.lease(setup, place)?));
        (0..setup.keys.len()).filter_map(lease)
    }

    /// The token that `who` knows for `key`, still good or not.
    pub(super) fn known(&self, who: Place, key: Place) -> Option<At> {
        self.known.get(who)?.get(key).copied().flatten()
    }

    fn learn(&mut self, who: Place, key: Place, at: At) {
        if let Some(known) = self.known.get_mut(who).and_then(|known| known.get_mut(key)) {
            *known = Some(at);
        }
    }

    /// Reads everything, for `who` to decide on.
    pub(super) fn read(&mut self, setup: &Setup, who: Place, ask: Ask) {
        let mut read = Read {
            ask,
            now: self.now,
            cells: self.cells.clone(),
            queue: self.queue.clone(),
            answers: Vec::new(),
            at: ask.key().and_then(|key| self.known(who, key)),
        };
        if let Ask::Acquire { dead: true, .. } = ask {
            let leases = self.leases(setup);
            read.answers = leases
                .map(|(_, lease)| answer(lease, Sight::Dead))
                .collect();
        }
        if let Some(reading) = self.reading.get_mut(who) {
            *reading = Some(read);
        }
    }

    /// Decides on what `who` read, and commits if that is unchanged; else it reads again.
    pub(super) fn commit(&mut self, setup: &Setup, who: Place, compare: Compare) -> Committed {
        let Some(read) = self.reading.get_mut(who).and_then(Option::take) else {
            return Committed::default();
        };
        if !self.unchanged(setup, who, &read, compare) {
            let again = Read {
                now: self.now,
                cells: self.cells.clone(),
                queue: self.queue.clone(),
                ..read
            };
            if let Some(reading) = self.reading.get_mut(who) {
                *reading = Some(again);
            }
            return Committed::default();
        }
        let Some((key, action)) = self.action(setup, who, &read) else {
            return Committed::default();
        };
        match decided(setup, who, &read, &action) {
            Decision::Ask(_) => Committed::default(),
            Decision::Refuse(refusal) => {
                if let Ask::Acquire {
                    key, wait: true, ..
                } = read.ask
                    && refusal.waits()
                {
                    self.revision = self.revision.saturating_add(1);
                    let id = WaiterId::from_order(self.revision);
                    self.queue.push(Queued { id, who, key });
                }
                Committed::default()
            }
            Decision::Change(plan) => {
                self.revision = self.revision.saturating_add(1);
                let lease = LeaseId::from_bytes(u128::from(self.revision).to_be_bytes());
                let fresh = plan.created().then(|| Generation::new(self.revision));
                let fresh = fresh.flatten().map(|generation| Fresh {
                    authority: AUTHORITY,
                    generation,
                    lease,
                });
                let seq = Seq {
                    major: self.revision,
                    minor: 0,
                };
                let mut changes = Vec::new();
                let grant = plan.commit(self, fresh, seq, &mut |change| changes.push(change));
                let granted = grant.zip(key).map(|(grant, key)| {
                    let to = match read.ask {
                        Ask::Adopt(_, to) => to,
                        _ => who,
                    };
                    self.learn(to, key, grant.at);
                    (to, key, grant.provenance)
                });
                match read.ask {
                    Ask::Retry(id) => self.queue.retain(|queued| queued.id != id),
                    Ask::Disconnect => self.queue.retain(|queued| queued.who != who),
                    _ => {}
                }
                Committed { changes, granted }
            }
        }
    }

    /// Whether the decision on `read` looks at `place`.
    fn looks_at(&self, setup: &Setup, who: Place, read: &Read, place: Place) -> bool {
        let own = self.own(read);
        match read.ask {
            Ask::Disconnect | Ask::Sweep => true,
            Ask::Acquire { .. } | Ask::Retry(_) | Ask::Adopt(..) => {
                own.is_some_and(|own| setup.overlap(own, place)) || self.is_of(setup, place, who)
            }
            _ => own == Some(place),
        }
    }

    /// What became of each cell that the decision on `read` looks at: free when it was read, as it
    /// was read, or written since, so that it can never be committed.
    pub(super) fn fates<'a>(
        &'a self,
        setup: &'a Setup,
        who: Place,
        read: &'a Read,
    ) -> impl Iterator<Item = Fate> + 'a {
        let looked_at = move |place: &Place| self.looks_at(setup, who, read, *place);
        (0..setup.keys.len()).filter(looked_at).map(|place| {
            let key = setup.keys.get(place);
            let by = |cells: &BTreeMap<ResourceKey, Written>| Some(cells.get(key?)?.by);
            match (by(&read.cells), by(&self.cells)) {
                (None, _) => Fate::Free,
                (was, is) if was == is => Fate::Same,
                (Some(_), _) => Fate::Gone,
            }
        })
    }

    /// Whether all that the decision looks at is as it was read.
    fn unchanged(&self, setup: &Setup, who: Place, read: &Read, compare: Compare) -> bool {
        let looked_at = |place: Place| match compare {
            Compare::Scene => self.looks_at(setup, who, read, place),
            Compare::OwnCell => self.own(read) == Some(place),
        };
        let same_cell = |place: Place| {
            let by = |cells: &BTreeMap<ResourceKey, Written>| {
                let written = cells.get(setup.keys.get(place)?)?;
                Some(written.by)
            };
            by(&self.cells) == by(&read.cells)
        };
        let same_queue = match (read.ask, compare) {
            (Ask::Acquire { .. }, Compare::Scene) => self.queue == read.queue,
            (Ask::Retry(id), Compare::Scene) => {
                let before = |queue: &[Queued]| -> Vec<Queued> {
                    queue
                        .iter()
                        .copied()
                        .filter(|queued| queued.id <= id)
                        .collect()
                };
                before(&self.queue) == before(&read.queue)
            }
            (Ask::Retry(id), Compare::OwnCell) => self.queue.iter().any(|queued| queued.id == id),
            _ => true,
        };
        same_queue && (0..setup.keys.len()).all(|place| !looked_at(place) || same_cell(place))
    }

    fn is_of(&self, setup: &Setup, place: Place, who: Place) -> bool {
        self.lease(setup, place)
            .is_some_and(|lease| setup.writer_of(&lease.holder) == Some(who))
    }

    /// The resource that a request is about.
    fn own(&self, read: &Read) -> Option<Place> {
        match read.ask {
            Ask::Retry(id) => {
                let mut queue = read.queue.iter();
                queue
                    .find(|queued| queued.id == id)
                    .map(|queued| queued.key)
            }
            ask => ask.key(),
        }
    }

    fn action(
        &self,
        setup: &Setup,
        who: Place,
        read: &Read,
    ) -> Option<(Option<Place>, Action<SessionHolder>)> {
        let writer = setup.writers.get(who)?.clone();
        let action = match read.ask {
            Ask::Acquire { .. } | Ask::Retry(_) => Action::Acquire {
                holder: writer,
                ttl: setup.ttl(),
            },
            Ask::Touch(_) => Action::Touch(read.at?),
            Ask::Begin(_) => Action::Begin {
                at: read.at?,
                op: OPERATION,
                from: Provenance::Created,
            },
            Ask::End(_, result) => Action::End {
                at: read.at?,
                op: OPERATION,
                result,
            },
            Ask::Release(_) => Action::Release(By::Token(read.at?)),
            Ask::Adopt(_, to) => Action::Adopt {
                token: read.at?.token,
                proof: AdoptProof::Present(writer),
                to: setup.writers.get(to)?.clone(),
            },
            Ask::Disconnect => Action::Disconnect(writer),
            Ask::Sweep => Action::Sweep,
        };
        Some((self.own(read), action))
    }
}

impl Ask {
    /// The resource that it names.
    pub(super) const fn key(self) -> Option<Place> {
        match self {
            Self::Acquire { key, .. }
            | Self::Touch(key)
            | Self::Begin(key)
            | Self::End(key, _)
            | Self::Release(key)
            | Self::Adopt(key, _) => Some(key),
            Self::Retry(_) | Self::Disconnect | Self::Sweep => None,
        }
    }

    /// Whether it shows a token.
    pub(super) const fn shows_token(self) -> bool {
        matches!(
            self,
            Self::Touch(_) | Self::Begin(_) | Self::End(..) | Self::Release(_) | Self::Adopt(..)
        )
    }
}

/// Decides on what was read, with the shipped decision.
pub(super) fn decided(
    setup: &Setup,
    who: Place,
    read: &Read,
    action: &Action<SessionHolder>,
) -> Decision<SessionHolder> {
    let free = Cell::FREE;
    let own = match read.ask {
        Ask::Retry(id) => {
            let mut queue = read.queue.iter();
            queue
                .find(|queued| queued.id == id)
                .map(|queued| queued.key)
        }
        ask => ask.key(),
    };
    let own = own.and_then(|key| setup.keys.get(key));
    let site = own.map(|key| {
        let written = read.cells.get(key);
        (key, written.map_or(&free, |written| &written.cell))
    });
    let of_asking = |cell: &Cell<SessionHolder>| {
        cell.lease()
            .is_some_and(|lease| setup.writer_of(&lease.holder) == Some(who))
    };
    let near: Vec<_> = read
        .cells
        .iter()
        .filter(|(key, written)| match (read.ask, own) {
            // More than is asked for: what is not this writer's must not matter.
            (Ask::Disconnect, _) => true,
            (Ask::Acquire { .. } | Ask::Retry(_) | Ask::Adopt(..), Some(own)) => {
                own != *key && (own.overlaps(key) || of_asking(&written.cell))
            }
            _ => false,
        })
        .map(|(key, written)| (key, &written.cell))
        .collect();
    let me = match read.ask {
        Ask::Retry(id) => Some(id),
        _ => None,
    };
    let queued: Vec<_> = read
        .queue
        .iter()
        .filter(|queued| me.is_none_or(|me| queued.id < me))
        .filter_map(|queued| {
            let key = setup.keys.get(queued.key)?;
            Some((queued.id, key, setup.writers.get(queued.who)?))
        })
        .collect();
    let mut due: Vec<_> = read
        .cells
        .iter()
        .filter(|(_, written)| {
            read.ask == Ask::Sweep
                && written
                    .cell
                    .lease()
                    .is_some_and(|lease| over(lease, read.now))
        })
        .map(|(key, written)| (key, &written.cell))
        .collect();
    due.sort_by_key(|(_, cell)| cell.lease().map(|lease| lease.token.generation));
    let scene = Scene {
        own: site,
        near: &near,
        queued: &queued,
        due: &due,
    };
    let seen = Seen {
        now: Moment::from_nanos(read.now),
        wall_ms: None,
        answers: &read.answers,
    };
    decide(&setup.policy, &scene, action, &seen)
}

impl Cells<SessionHolder> for Shared {
    fn put(&mut self, key: &ResourceKey, cell: Cell<SessionHolder>) -> Slot {
        let by = self.revision;
        self.cells.insert(key.clone(), Written { cell, by });
        Slot::NONE
    }

    fn edit(
        &mut self,
        key: &ResourceKey,
        _: Slot,
        edit: &mut dyn FnMut(&mut Cell<SessionHolder>),
    ) -> Slot {
        if let Some(written) = self.cells.get_mut(key) {
            edit(&mut written.cell);
            written.by = self.revision;
        }
        Slot::NONE
    }

    fn remove(&mut self, key: &ResourceKey, _: Slot) {
        self.cells.remove(key);
    }
}
