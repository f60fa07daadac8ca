//! What is stored of a lease, how its stamps are shown, and what its receipts tell.

use lease_core::{Code, Moment};
use lease_procfs::bound::{
    AllocationId, GrantReason, LeaseRecord, NameError, OwnerId, RECORD_SCHEMA, Request, WallStamp,
};

use super::rig::{W0, dead, first, keeper, lease_id, receipt, second, seconds};

// B65
#[test]
fn an_unknown_schema_is_invalid_metadata() {
    assert!(LeaseRecord::check_schema(RECORD_SCHEMA).is_ok());
    for schema in [0, RECORD_SCHEMA + 1, u32::MAX] {
        let refused = LeaseRecord::check_schema(schema).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidMetadata);
        assert_eq!(refused.reason(), Some("schema_version"));
    }
}

// B65
#[cfg(feature = "serde")]
#[test]
fn a_record_keeps_every_field_through_the_store() {
    let mut keeper = keeper();
    keeper.acquire_for(&first(), seconds(60)).unwrap();
    keeper.at(5_000).acquire(&first()).unwrap();
    let record = keeper.record().unwrap();
    let json = serde_json::to_value(&record).unwrap();
    for field in [
        "schema",
        "repository",
        "allocation",
        "path",
        "owner",
        "boot_id",
        "version",
        "renewed",
        "acquired_at",
        "renewed_at",
        "lease",
    ] {
        assert!(json.get(field).is_some(), "{field} in {json}");
    }
    assert_eq!(json["schema"], RECORD_SCHEMA);
    assert_eq!(json["version"], 2);
    assert_eq!(json["acquired_at"], "2023-11-14T22:13:20.000Z");
    let read: LeaseRecord = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(read, record);

    let mut later = json;
    later["schema"] = 2.into();
    let refused = serde_json::from_value::<LeaseRecord>(later).unwrap_err();
    assert!(
        refused.to_string().contains("unknown schema 2"),
        "{refused}"
    );
}

// B65
#[cfg(feature = "serde")]
#[test]
fn a_stored_record_that_is_none_is_invalid_metadata_and_repeats_nothing() {
    use serde_json::{Value, json};

    let keeper = keeper();
    keeper.acquire_for(&first(), seconds(60)).unwrap();
    let whole = serde_json::to_value(keeper.record().unwrap()).unwrap();
    let check = |text: &str, reason: &str, said: &str| {
        let refused = LeaseRecord::read(&mut serde_json::Deserializer::from_str(text));
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidMetadata, "{text}");
        assert_eq!(refused.reason(), Some(reason), "{text}");
        assert_eq!(refused.to_string(), said, "{text}");
        let read = serde_json::from_str::<LeaseRecord>(text).unwrap_err();
        assert!(!read.to_string().contains("secret"), "{read}");
    };
    for text in [
        "",
        "nonsense",
        "{}",
        r#"{"schema":"secret"}"#,
        r#"{"schema":-1}"#,
        "{\"schema\":1",
    ] {
        check(text, "malformed", "the stored record is malformed");
    }
    // A later form is told as one, whatever else it holds and wherever the schema stands.
    for text in [
        r#"{"schema":2}"#,
        r#"{"lease":["secret"],"path":7,"schema":2}"#,
    ] {
        check(
            text,
            "schema_version",
            "the record has the unknown schema 2",
        );
    }
    let fields = whole.as_object().unwrap();
    for field in fields.keys().filter(|field| *field != "schema") {
        let part = if field == "lease" { "lease" } else { "filing" };
        let said = format!("the stored {part} is malformed");
        for wrong in [
            None,
            Some(json!({"secret": "secret"})),
            Some(json!([])),
            Some(json!(true)),
        ] {
            let mut broken = fields.clone();
            let optional = ["acquired_at", "renewed_at"].contains(&field.as_str());
            match wrong {
                None if optional => continue,
                None => drop(broken.remove(field)),
                Some(wrong) => drop(broken.insert(field.clone(), wrong)),
            }
            check(&Value::Object(broken).to_string(), "malformed", &said);
        }
    }
    let inner = whole["lease"].as_object().unwrap();
    for field in inner.keys() {
        let mut broken = whole.clone();
        broken["lease"][field] = json!({"secret": "secret"});
        check(
            &broken.to_string(),
            "malformed",
            "the stored lease is malformed",
        );
    }
}

#[cfg(all(feature = "serde", unix))]
#[test]
fn a_path_that_is_not_text_is_stored_too() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;

    let mut keeper = keeper();
    let path = OsString::from_vec(b"/w/\xFF".to_vec());
    keeper.yard.record.path = lease_procfs::TargetPath::new(path).unwrap();
    keeper.acquire(&first()).unwrap();
    let record = keeper.record().unwrap();
    let json = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<LeaseRecord>(&json).unwrap(), record);
}

// B65
#[test]
fn an_allocation_has_at_most_one_lease() {
    let keeper = keeper();
    keeper.acquire(&first()).unwrap();
    assert_eq!(
        keeper.acquire(&second()).unwrap_err().code(),
        Code::LeaseHeld
    );
    keeper.acquire(&first()).unwrap();
    keeper.liveness.says(4242, dead());
    keeper.acquire(&second()).unwrap();
    assert_eq!(keeper.record().unwrap().lease.holder, second());
    for nested in ["w/alloc-7", "a/b/c"] {
        assert!(
            AllocationId::new(nested).is_err(),
            "{nested} would lie in another"
        );
    }
}

// B66
#[test]
fn stamps_are_shown_as_utc_and_read_with_any_offset() {
    let w0 = WallStamp::from_millis(W0).unwrap();
    assert_eq!(w0.to_string(), "2023-11-14T22:13:20.000Z");
    for text in [
        "2023-11-14T23:13:20+01:00",
        "2023-11-14T22:13:20Z",
        "2023-11-14T17:43:20-04:30",
        "2023-11-14T22:13:20.000999Z",
        &w0.to_string(),
    ] {
        assert_eq!(text.parse(), Ok(w0), "{text}");
    }
    for text in [
        "",
        "2023-11-14",
        "2023-11-14T22:13:20",
        "1700000000",
        "soon",
    ] {
        assert!(text.parse::<WallStamp>().is_err(), "{text}");
    }
    let later = WallStamp::from_millis(W0 + 1_234).unwrap();
    assert_eq!(later.to_string(), "2023-11-14T22:13:21.234Z");
    for (ms, shown) in [
        (-62_167_219_200_000, "0000-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
    ] {
        assert_eq!(WallStamp::from_millis(ms).unwrap().to_string(), shown);
    }
    for ms in [i64::MIN, -62_167_219_200_001, i64::MAX] {
        assert!(WallStamp::from_millis(ms).is_err(), "{ms}");
    }
}

// B66
#[test]
fn the_wall_clock_decides_nothing() {
    let mut keeper = keeper();
    keeper.acquire_for(&first(), seconds(60)).unwrap();
    let (me, view) = (first(), keeper.yard.clone());
    let renew = |keeper: &super::rig::Keeper, wall_ms| {
        let request = Request::new(&me);
        keeper.call(|ledger, turn| {
            turn.seen.wall_ms = wall_ms;
            ledger.acquire(&request, &view.view(), &super::rig::roles, turn)
        })
    };
    keeper.at(60_000);
    for wall_ms in [None, Some(0), Some(i64::MIN), Some(4_000_000_000_000)] {
        let renewed = receipt(renew(&keeper, wall_ms).unwrap());
        assert_eq!(renewed.change.code, Code::Renewed);
    }
    // What was filed without a wall time shows none.
    let shown = receipt(renew(&keeper, None).unwrap());
    assert_eq!(shown.expires_at, None);
    keeper.at(60_001);
    let refused = renew(&keeper, Some(W0)).unwrap_err();
    assert_eq!(refused.code(), Code::LeaseExpired);
}

// B67
#[test]
fn a_new_lease_has_a_drawn_id_equal_stamps_and_version_one() {
    let keeper = keeper();
    keeper.acquire(&first()).unwrap();
    let record = keeper.record().unwrap();
    assert_eq!(record.lease_id(), lease_id(1));
    assert_eq!(record.filing.version, 1);
    assert_eq!(record.lease.acquired, record.filing.renewed);
    assert_eq!(record.filing.acquired_at, record.filing.renewed_at);
    assert_eq!(record.filing.acquired_at, WallStamp::from_millis(W0).ok());
}

// B87
#[test]
fn a_renewal_moves_its_stamp_and_the_version_and_nothing_else() {
    let mut keeper = keeper();
    keeper.acquire(&first()).unwrap();
    let before = keeper.record().unwrap();
    let receipt = keeper.at(5_000).acquire(&first()).unwrap();
    assert_eq!(receipt.change.code, Code::Renewed);
    let after = keeper.record().unwrap();
    assert_eq!((before.filing.version, after.filing.version), (1, 2));
    assert_eq!(after.filing.renewed, Moment::from_millis(1_005_000));
    assert_eq!(
        after.filing.renewed_at,
        WallStamp::from_millis(W0 + 5_000).ok()
    );
    assert_eq!(after.filing.acquired_at, before.filing.acquired_at);
    assert_eq!(after.lease.token, before.lease.token);
    assert_eq!(after.lease.acquired, before.lease.acquired);
    assert_eq!(after.lease.holder, before.lease.holder);
}

// B90
#[test]
fn an_expired_lease_renewed_with_a_term_keeps_its_id_and_counts_on() {
    let mut keeper = keeper();
    keeper.acquire_for(&first(), seconds(60)).unwrap();
    let receipt = keeper
        .at(60_001)
        .acquire_for(&first(), seconds(30))
        .unwrap();
    assert_eq!(receipt.change.code, Code::Renewed);
    let record = keeper.record().unwrap();
    assert_eq!((record.lease_id(), record.filing.version), (lease_id(1), 2));
    assert_eq!(record.lease.expires, Some(Moment::from_millis(1_090_001)));
}

// B95
#[test]
fn all_three_grants_carry_every_field() {
    let mut keeper = keeper();
    let mut shown = Vec::new();
    let mut receipts = Vec::new();
    receipts.push(keeper.acquire_for(&first(), seconds(60)).unwrap());
    receipts.push(keeper.at(5_000).acquire_for(&first(), seconds(90)).unwrap());
    keeper.liveness.says(4242, dead());
    receipts.push(
        keeper
            .at(7_000)
            .acquire_for(&second(), seconds(30))
            .unwrap(),
    );
    for receipt in &receipts {
        shown.push(receipt.to_string());
        assert_eq!(receipt.resolver_version, 1);
        assert_eq!(receipt.place, keeper.yard.place());
        assert!(receipt.change.token.is_some() && receipt.expires.is_some());
        assert!(receipt.expires_at.is_some());
    }
    insta::assert_snapshot!(shown.join("\n"));
    let reasons: Vec<_> = receipts.iter().map(|receipt| receipt.reason).collect();
    assert_eq!(
        reasons,
        [
            GrantReason::Free,
            GrantReason::SameHolder,
            GrantReason::HolderGone
        ]
    );
    let holders = [first(), first(), second()];
    assert!(receipts.iter().map(|receipt| &receipt.holder).eq(&holders));
    let previous = receipts[2].previous.as_ref().unwrap();
    assert_eq!(
        (previous.token.lease, &previous.holder),
        (lease_id(1), &first())
    );
    assert_eq!(previous.expires, receipts[1].expires);
    assert_eq!(previous.evidence.as_ref().unwrap().proof, "exited");
}

#[cfg(feature = "serde")]
#[test]
fn receipts_have_a_stable_form() {
    use lease_procfs::bound::{GrantReceipt, Release, ReleaseOnBehalf, ReleaseReceipt};

    let keeper = keeper();
    keeper.acquire_for(&first(), seconds(60)).unwrap();
    keeper.liveness.says(4242, dead());
    let granted = keeper.acquire(&second()).unwrap();
    let release = Release::OnBehalf(ReleaseOnBehalf::of(second()));
    let released = keeper.release(&release).unwrap();
    let text = |value: &serde_json::Value| serde_json::to_string_pretty(value).unwrap();
    let json = serde_json::to_value(&granted).unwrap();
    insta::assert_snapshot!("granted", text(&json));
    assert_eq!(
        serde_json::from_value::<GrantReceipt>(json).unwrap(),
        granted
    );
    let json = serde_json::to_value(&released).unwrap();
    insta::assert_snapshot!("released", text(&json));
    assert_eq!(
        serde_json::from_value::<ReleaseReceipt>(json).unwrap(),
        released
    );
}

#[test]
fn a_name_is_text_of_bounded_length_without_control_characters() {
    let long = "x".repeat(257);
    for (text, error) in [
        ("", NameError::Empty),
        (long.as_str(), NameError::TooLong { bytes: 257 }),
        ("a\nb", NameError::Control { at: 1 }),
        ("a\0", NameError::Control { at: 1 }),
    ] {
        assert_eq!(OwnerId::new(text), Err(error));
    }
    assert_eq!(OwnerId::new(&long[..256]).unwrap().as_str().len(), 256);
}
