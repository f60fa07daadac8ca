//! A forked child has a copy of everything, also of the authority. No token of it may pass for one of its parent.

use std::collections::BTreeSet;

use lease_async::{Leases, Memory, Session};

use crate::jump::{alone, now};
use crate::rig::KEY;
use crate::sys::forked;

/// Takes a lease and begins under it. Answers what is the same in a copy of the authority, and the two ids.
fn next(session: &Session) -> String {
    let guard = now(session.acquire(KEY).into_future()).unwrap();
    let operation = now(guard.begin()).unwrap();
    let token = guard.token();
    let (authority, generation) = (token.authority, token.generation);
    let (lease, operation) = (token.lease, operation.id());
    format!("{authority:?} {generation:?}\t{lease:?}\t{operation:?}\n")
}

#[test]
fn the_ids_of_a_forked_child_are_not_those_of_its_parent() {
    let name = "forks::the_ids_of_a_forked_child_are_not_those_of_its_parent";
    alone(name, || {
        let leases = Leases::new(Memory::new().unwrap()).unwrap();
        let session = leases.connect("a").unwrap();
        // From now on ids are in stock.
        drop(now(session.acquire("docs").into_future()).unwrap());
        let mut told = forked(|| {
            let by_its_child = forked(|| next(&session));
            by_its_child + &next(&session)
        });
        told += &next(&session);
        let parts = told.lines().map(|line| line.split_once('\t').unwrap());
        let (grants, ids): (BTreeSet<_>, Vec<_>) = parts.unzip();
        assert_eq!((grants.len(), ids.len()), (1, 3), "{told}");
        let ids: Vec<_> = ids.iter().flat_map(|ids| ids.split('\t')).collect();
        let different: BTreeSet<_> = ids.iter().collect();
        assert_eq!((ids.len(), different.len()), (6, 6), "{told}");
        Ok(())
    });
}
