//! One side waits while the other holds.

use crate::rig::{Language, Place, Side, Writer};

/// Each side waits for the other, and is granted after its release and not before.
pub(crate) fn for_a_release(language: Language) {
    let peer = Side::Peer(language);
    for (holds, waits) in [(Side::Ours, peer), (peer, Side::Ours)] {
        let place = Place::new();
        let mut holder = Writer::start(holds, &place);
        let mut waiter = Writer::start(waits, &place);
        for _round in 0..20 {
            holder.acquires();
            waiter.order("acquire 9000");
            // The holder answers once more while the other waits.
            assert!(!holder.does("record").is_empty());
            assert_eq!(waiter.early_answer(), None);
            holder.releases();
            assert_eq!(waiter.answer(), "granted", "{waits:?} waits");
            let named = format!("busy {} ", waiter.pid());
            let answer = holder.does("acquire 0");
            assert!(answer.starts_with(&named), "{answer}");
            waiter.releases();
        }
    }
}

/// The deadline of a waiter counts, whoever holds.
pub(crate) fn to_a_deadline(language: Language) {
    let peer = Side::Peer(language);
    for (holds, waits) in [(Side::Ours, peer), (peer, Side::Ours)] {
        let place = Place::new();
        let mut holder = Writer::start(holds, &place);
        let mut waiter = Writer::start(waits, &place);
        holder.acquires();
        let answer = waiter.does("acquire 60");
        let named = format!("busy {} ", holder.pid());
        assert!(answer.starts_with(&named), "{answer}");
        // A wait that was given up leaves nothing in the way.
        holder.releases();
        holder.acquires();
        holder.releases();
        waiter.acquires();
    }
}
