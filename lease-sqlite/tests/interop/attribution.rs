//! Who holds, by whose record.

use crate::rig::{Language, Place, Side, Writer, until};

/// Ours names a peer from the peer's own record, and says how sure that is.
pub(crate) fn of_a_peer(language: Language) {
    let place = Place::new();
    let mut ours = Writer::start(Side::Ours, &place);
    let mut peer = Writer::start(Side::Peer(language), &place);
    let pid = peer.pid();
    peer.acquires();
    let sure = |how: &str| format!("busy {pid} peer Kernel({how}) locked_by=Some({pid})");
    assert_eq!(ours.does("acquire 0"), sure("Unconfirmed"));
    // A second look, a poll later, sees the same token.
    until("two looks agree", || {
        ours.does("acquire 0") == sure("Confirmed")
    });
    peer.releases();
    assert_eq!(ours.does("record"), format!("{pid} peer"));
    ours.acquires();
    assert_eq!(ours.does("record"), format!("{} ours", ours.pid()));
    ours.releases();
    // Somebody else holds now, so what was sure is not sure any more.
    peer.acquires();
    assert_eq!(ours.does("acquire 0"), sure("Unconfirmed"));
}

/// A peer names ours from our record, whose every byte is what the protocol says.
pub(crate) fn of_ours(language: Language) {
    let place = Place::new();
    let mut ours = Writer::start(Side::Ours, &place);
    let mut peer = Writer::start(Side::Peer(language), &place);
    ours.acquires();
    let named = format!("{} ours", ours.pid());
    assert_eq!(peer.does("acquire 0"), format!("busy {named}"));
    // The peer computes the sum of our record by itself; its own has none.
    let whole = |sum: &str| format!("{named} sum={sum} size=1024");
    assert_eq!(peer.does("record"), whole("True"));
    ours.releases();
    assert_eq!(
        peer.does("record"),
        whole("True"),
        "a release writes nothing"
    );
    peer.acquires();
    let own = format!("{} peer sum=None size=1024", peer.pid());
    assert_eq!(peer.does("record"), own);
    peer.releases();
}
