use diesel::result::DatabaseErrorKind;

use super::*;

/// An error as Diesel reports it.
#[derive(Debug, Clone, Copy, Default)]
struct Information {
    message: &'static str,
    table: Option<&'static str>,
    constraint: Option<&'static str>,
}

impl DatabaseErrorInformation for Information {
    fn message(&self) -> &str {
        self.message
    }
    fn details(&self) -> Option<&str> {
        None
    }
    fn hint(&self) -> Option<&str> {
        None
    }
    fn table_name(&self) -> Option<&str> {
        self.table
    }
    fn column_name(&self) -> Option<&str> {
        None
    }
    fn constraint_name(&self) -> Option<&str> {
        self.constraint
    }
    fn statement_position(&self) -> Option<i32> {
        None
    }
}

/// Returns the kind of outage of an error, or `None` if it is an internal error.
fn kind(information: Information) -> Option<OutageKind> {
    let error = DieselError::DatabaseError(DatabaseErrorKind::UnableToSendCommand, Box::new(information));
    match Error::from(error) {
        Error::Unavailable(outage) => Some(outage.kind),
        Error::Internal(_) => None,
        other => panic!("{other:?}"),
    }
}

fn kind_of(message: &'static str) -> Option<OutageKind> {
    kind(Information { message, ..Information::default() })
}

#[test]
fn an_outage_is_classified_by_its_code_in_any_language() {
    let table = [
        ("08006: server conn crashed?", OutageKind::Lost),
        ("25006: INSERT kann nicht in einer Read-Only-Transaktion ausgeführt werden", OutageKind::ReadOnly),
        ("28P01: Passwort-Authentifizierung fehlgeschlagen", OutageKind::Refused),
        ("3D000: Datenbank existiert nicht", OutageKind::Refused),
        ("40001: kann Zugriff nicht serialisieren", OutageKind::Conflict),
        ("40P01: Verklemmung entdeckt", OutageKind::Conflict),
        ("40003: statement completion unknown", OutageKind::Lost),
        ("53100: konnte Datei nicht erweitern", OutageKind::DiskFull),
        ("53200: Shared Memory aufgebraucht", OutageKind::OutOfMemory),
        ("53300: tut mir leid, schon zu viele Verbindungen", OutageKind::TooManyConnections),
        ("55P03: storniere Anfrage wegen Zeitüberschreitung der Sperre", OutageKind::TooSlow),
        ("57014: storniere Anfrage wegen Zeitüberschreitung der Anfrage", OutageKind::TooSlow),
        ("57P01: Verbindung wird abgebrochen", OutageKind::Unreachable),
        ("57P03: das Datenbanksystem startet", OutageKind::Unreachable),
        ("58030: konnte nicht lesen", OutageKind::Broken),
        ("58P01: konnte Datei nicht öffnen", OutageKind::Broken),
    ];
    for (message, expected) in table {
        assert_eq!(kind_of(message), Some(expected), "{message}");
    }
}

#[test]
fn an_error_of_the_statement_is_not_an_outage() {
    for message in ["22P02: invalid input syntax", "23505: duplicate key", "42P01: no such relation", "54000: too long"]
    {
        assert_eq!(kind_of(message), None, "{message}");
    }
}

#[test]
fn the_text_of_an_error_is_ignored() {
    for message in ["22P02: deadlock detected", "22P02: terminating connection", "22P02: statement timeout"] {
        assert_eq!(kind_of(message), None, "{message}");
    }
}

#[test]
fn an_error_without_a_code_is_a_lost_connection() {
    for message in ["connection closed", "error communicating with the server: reset", "abc", ""] {
        assert_eq!(kind_of(message), Some(OutageKind::Lost), "{message}");
    }
}

#[test]
fn a_row_that_meets_a_new_partition_is_a_conflict_but_a_violated_check_is_not() {
    let message = "23514: new row for relation \"event_log_default\" violates partition constraint";
    let partition = Information { message, table: Some("event_log_default"), constraint: None };
    assert_eq!(kind(partition), Some(OutageKind::Conflict));
    assert_eq!(kind(Information { constraint: Some("title_is_short"), ..partition }), None);
    assert_eq!(kind(Information { table: None, ..partition }), None, "raised by a trigger");
}

#[test]
fn only_a_lost_connection_leaves_the_outcome_of_a_commit_unknown() {
    let of_commit = |kind| Error::outage(kind, "").of_commit();
    assert!(matches!(of_commit(OutageKind::Lost), Error::OutcomeUnknown(_)));
    assert!(matches!(of_commit(OutageKind::TooSlow), Error::Unavailable(_)));
    assert!(matches!(of_commit(OutageKind::Unreachable), Error::Unavailable(_)));
}

#[test]
fn a_refusal_of_the_client_is_not_retried() {
    let refuses = |code: &str| SqlState::parse(code.as_bytes()).unwrap().refuses_client();
    for code in ["28000", "28P01", "3D000", "42501"] {
        assert!(refuses(code), "{code}");
    }
    for code in ["57P03", "53300", "08006"] {
        assert!(!refuses(code), "{code}");
    }
}

#[test]
fn a_statement_that_took_too_long_is_told_from_one_that_waited_for_a_lock() {
    let is_cancelled = |code: &str| SqlState::parse(code.as_bytes()).unwrap().is_cancelled();
    assert!(is_cancelled("57014"));
    assert!(is_cancelled("25P02"), "it was cancelled while it was prepared");
    for code in ["55P03", "40P01", "57P01"] {
        assert!(!is_cancelled(code), "{code}");
    }
}
