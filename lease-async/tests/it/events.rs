//! Receipts for listeners: in order, bounded, and never in a lease's way.

use lease_async::{Event, Leases, ManualClock, Memory, Moment};

use crate::rig::{KEY, Rig, ask};

#[tokio::test]
async fn a_listener_gets_every_receipt_in_order() {
    let mut rig = Rig::still();
    let session = rig.connect("a");
    for _ in 0..100 {
        drop(ask(&session).await.unwrap());
    }
    let numbers: Vec<_> = rig
        .receipts()
        .iter()
        .map(|receipt| receipt.change.seq)
        .collect();
    assert_eq!(numbers.len(), 200);
    assert!(numbers.is_sorted());
}

#[tokio::test]
async fn a_slow_listener_is_told_how_many_it_missed() {
    let memory = Memory::builder()
        .clock(ManualClock::new(Moment::ZERO))
        .receipts(8)
        .build()
        .unwrap();
    let leases = Leases::new(memory).unwrap();
    let mut events = leases.events();
    let session = leases.connect("a").unwrap();
    for _ in 0..10 {
        drop(session.acquire(KEY).await.unwrap());
    }
    assert!(matches!(events.next().await, Some(Event::Missed(12))));
    for _ in 0..8 {
        assert!(matches!(events.next().await, Some(Event::Receipt(_))));
    }
    assert!(events.try_next().is_none());
    drop((leases, session));
    // The last share of the authority went with the session, after its disconnect.
    assert!(events.next().await.is_none());
}
