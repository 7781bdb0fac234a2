//! SQLSTATEs: classifies database errors by their code. The text of an error is useless for that,
//! since its language depends on the database's `lc_messages`.
//!
//! Diesel drops the code of most errors. [`crate::store::connection::stream::DatabaseStream`] therefore
//! writes it in front of each message, like `psql` in verbose mode (`40P01: deadlock detected`), and
//! [`SqlState::of`] reads it there. An error without a code does not come from the database: the
//! connection was lost, or the database crashed.

use diesel::result::{DatabaseErrorInformation, Error as DieselError};

use crate::error::{Error, OutageKind};

/// A SQLSTATE: the five characters that classify an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SqlState([u8; 5]);

/// The separator between the code and the message.
const SEPARATOR: &[u8] = b": ";

impl SqlState {
    /// Parses a code. Returns `None` if `bytes` are not five digits or uppercase letters.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let code: [u8; 5] = bytes.try_into().ok()?;
        code.iter().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase()).then_some(SqlState(code))
    }

    /// Parses the code in front of a message.
    fn of_message(message: &str) -> Option<Self> {
        let (code, rest) = message.as_bytes().split_at_checked(5)?;
        rest.starts_with(SEPARATOR).then(|| Self::parse(code)).flatten()
    }

    /// Returns the code of an error, or `None` if it does not come from the database.
    pub(crate) fn of(error: &DieselError) -> Option<Self> {
        match error {
            DieselError::DatabaseError(_, information) => Self::of_message(information.message()),
            DieselError::RollbackErrorOnCommit { commit_error, .. } => Self::of(commit_error),
            _ => None,
        }
    }

    /// Returns the bytes to put in front of a message.
    pub(in crate::store) fn prefix(self) -> impl Iterator<Item = u8> {
        self.0.into_iter().chain(SEPARATOR.iter().copied())
    }

    /// Returns whether the database refuses the client, so that a retry is useless: wrong password, no
    /// entry in `pg_hba.conf`, unknown role, unknown database, or no right to connect.
    pub(crate) fn refuses_client(self) -> bool {
        matches!(&self.0, [b'2', b'8', ..] | b"3D000" | b"42501")
    }

    /// Returns whether `pg_hba.conf` may refuse this connection, and allow one with or without TLS.
    pub(in crate::store) fn refuses_connection(self) -> bool {
        &self.0 == b"28000"
    }

    /// Returns whether a table or function is missing, because the schema has not been migrated.
    pub(in crate::store) fn is_undefined(self) -> bool {
        matches!(&self.0, b"42P01" | b"42883" | b"3F000")
    }

    /// Returns whether a statement was cancelled because it took too long. If that was while it was prepared, the error
    /// is that of the next statement in the aborted transaction.
    pub(crate) fn is_cancelled(self) -> bool {
        matches!(&self.0, b"57014" | b"25P02")
    }

    /// Returns the kind of outage, or `None` if the statement itself is at fault.
    ///
    /// | class | meaning |
    /// |---|---|
    /// | 08, 40003 | a pooler lost the database; the outcome is unknown |
    /// | 25006 | read-only: a standby, or `default_transaction_read_only` |
    /// | 28, 3D000 | the database refuses the client |
    /// | 40001, 40P01 | conflict with another transaction |
    /// | 53100, 53300 | disk full, too many connections |
    /// | 53 | out of memory, or out of lock slots |
    /// | 55006, 55P03, 57014 | a lock was held, or the statement took too long |
    /// | 57 | the database is stopping, starting or recovering |
    /// | 58 | the database's files are missing, or cannot be read or written |
    fn outage(self) -> Option<OutageKind> {
        match &self.0 {
            [b'0', b'8', ..] | b"40003" => Some(OutageKind::Lost),
            b"25006" => Some(OutageKind::ReadOnly),
            [b'2', b'8', ..] | b"3D000" => Some(OutageKind::Refused),
            b"40001" | b"40P01" => Some(OutageKind::Conflict),
            b"53100" => Some(OutageKind::DiskFull),
            b"53300" => Some(OutageKind::TooManyConnections),
            [b'5', b'3', ..] => Some(OutageKind::OutOfMemory),
            b"55006" | b"55P03" | b"57014" => Some(OutageKind::TooSlow),
            [b'5', b'7', ..] => Some(OutageKind::Unreachable),
            [b'5', b'8', ..] => Some(OutageKind::Broken),
            _ => None,
        }
    }
}

impl std::fmt::Display for SqlState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl From<DieselError> for Error {
    fn from(error: DieselError) -> Self {
        let kind = match &error {
            DieselError::DatabaseError(_, information) => outage_of(information.as_ref()),
            DieselError::BrokenTransactionManager => Some(OutageKind::Lost),
            DieselError::RollbackErrorOnCommit { commit_error, .. } => {
                SqlState::of(commit_error).map_or(Some(OutageKind::Lost), SqlState::outage)
            }
            _ => None,
        };
        match kind {
            Some(kind) => Error::outage(kind, text_of(&error)),
            None => Error::Internal(text_of(&error)),
        }
    }
}

fn outage_of(information: &dyn DatabaseErrorInformation) -> Option<OutageKind> {
    match SqlState::of_message(information.message()) {
        // The partition of a day was attached while this row was being inserted into the default
        // partition. A CHECK reports the name of its constraint; the constraint of a partition has no
        // name, and only the table is reported.
        Some(SqlState(code)) if &code == b"23514" => {
            let is_of_partition = information.constraint_name().is_none() && information.table_name().is_some();
            is_of_partition.then_some(OutageKind::Conflict)
        }
        Some(code) => code.outage(),
        None => Some(OutageKind::Lost),
    }
}

fn text_of(error: &DieselError) -> String {
    match error {
        DieselError::DatabaseError(_, information) => information.message().to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
