//! What people say goes into receipts, and decides nothing.

use lease_core::{Code, Disposition, OperationKind};

use crate::rig::{KEY, Rig, ask};

/// The codes since the last look, each with who and why.
fn words(rig: &mut Rig<lease_async::ManualClock>) -> Vec<(Code, Option<(String, String)>)> {
    let said = |receipt: &lease_core::Receipt<_>| {
        let note = receipt.note.as_ref();
        let words = note.map(|note| (note.by.to_string(), note.reason.to_string()));
        (receipt.change.code, words)
    };
    rig.receipts().iter().map(|receipt| said(receipt)).collect()
}

fn said(code: Code, by: &str, why: &str) -> (Code, Option<(String, String)>) {
    (code, Some((by.to_owned(), why.to_owned())))
}

#[tokio::test]
async fn a_receipt_says_the_kind_of_an_operation_and_why_it_failed() {
    let mut rig = Rig::still();
    let session = rig.connect("a");
    let guard = session.acquire(KEY).because("a new scene").await.unwrap();
    let kind = OperationKind::SetProperty;
    let operation = guard
        .begin_kind(kind)
        .await
        .unwrap()
        .because("out of range");
    operation.fail(Disposition::RolledBack).await.unwrap();
    assert_eq!(
        words(&mut rig),
        [
            said(Code::Created, "request", "a new scene"),
            said(Code::OperationBegun, "set_property", "begun"),
            said(Code::ReleasedAfterFailure, "set_property", "out of range"),
        ]
    );
}

#[tokio::test]
async fn an_operation_without_words_says_none_unless_it_is_dropped() {
    let mut rig = Rig::still();
    let session = rig.connect("a");
    let guard = ask(&session).await.unwrap();
    guard.begin().await.unwrap().end().await.unwrap();
    let undo = guard.begin_kind(OperationKind::Undo).await.unwrap();
    undo.end().await.unwrap();
    drop(guard.begin_kind(OperationKind::Redo).await.unwrap());
    drop(guard.begin().await.unwrap().because("never said"));
    assert_eq!(
        words(&mut rig),
        [
            (Code::Created, None),
            (Code::OperationBegun, None),
            (Code::OperationEnded, None),
            said(Code::OperationBegun, "undo", "begun"),
            said(Code::OperationEnded, "undo", "done"),
            said(Code::OperationBegun, "redo", "begun"),
            said(Code::RetainedAfterFailure, "redo", "dropped"),
            (Code::OperationBegun, None),
            said(Code::RetainedAfterFailure, "operation", "dropped"),
        ]
    );
}
