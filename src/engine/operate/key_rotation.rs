//! The rotation of the keys that encrypt secrets at rest.
//!
//! All stored secrets are read in small steps, and those that the first key has not encrypted are encrypted again.
//! Servers go on meanwhile. They have the old and the new key, so they can decrypt a value before and after the change.
//! A row is replaced only if it still has the text that was read, so a concurrent change of a subscription wins. It is
//! left for the next pass, and so is a dead letter that is in use.
//!
//! A transaction that began earlier may still copy an old value into a new dead letter. Each further pass therefore
//! begins when all transactions of the pass before have ended. The rotation is done when a pass finds nothing to do. It
//! may be interrupted and repeated at any time.
//!
//! The audit log of each namespace says that its secrets were rotated. The entry is written before the first of its rows
//! is replaced, so an interrupted rotation leaves one, too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use diesel_async::AsyncPgConnection;
use serde_json::json;
use tokio::time::Instant;

use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::encryption::{Binding, Field, Keyring, Owner};
use crate::domain::ids::{NamespaceId, SourceId, SubscriptionId};
use crate::domain::scope::Scope;
use crate::domain::source::renew_source_text;
use crate::domain::subscription::{Renewal, renew_headers, renew_secret};
use crate::error::{Error, OutageKind};
use crate::store::tables::audit_log::record_audit;
use crate::store::tables::catalog::renew_generation;
use crate::store::tables::stored_secrets::{
    Replacement, SecretRow, SecretTable, connect_to_rotate, read_secret_rows, read_transaction_range,
    replace_secret_rows,
};

/// The name of the command in the audit log.
const ACTOR: &str = "waybill secrets rotate";

/// The number of rows that one statement reads.
const READ_ROWS: i64 = 500;

/// The number of rows that one statement replaces.
const REPLACE_ROWS: usize = 100;

/// The maximum number of passes. More are needed only if servers go on storing values under another key.
const MAX_PASSES: usize = 10;

/// The maximum time that a pass waits for earlier transactions. No transaction of a server lasts longer.
const TRANSACTION_WAIT: Duration = Duration::from_secs(30);

/// The pause between two looks at the earlier transactions.
const TRANSACTION_PAUSE: Duration = Duration::from_millis(100);

/// The result of a rotation.
#[derive(Debug, Clone, Default)]
pub(crate) struct RotationReport {
    /// The number of values by table and by key, as the last pass found them.
    pub found: BTreeMap<(SecretTable, FoundKey), u64>,
    /// The values that cannot be decrypted, the first [`UNREADABLE_SHOWN`] in words.
    pub unreadable: Vec<String>,
    pub unreadable_count: u64,
    /// The number of rows that were read, in all passes.
    pub rows_read: u64,
    /// The number of rows that were replaced, in all passes.
    pub rows_replaced: u64,
    /// The number of rows that the last pass left for another one.
    pub rows_left: u64,
    /// Whether the last pass found nothing to do, and all transactions that ran before it had ended.
    pub is_complete: bool,
}

/// The number of unreadable values that are described.
const UNREADABLE_SHOWN: usize = 20;

/// The key of a value, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FoundKey {
    Plain,
    Key(String),
    /// The value has no form that this version knows.
    Unknown,
}

/// A rotation that is under way.
pub(crate) struct KeyRotation<'a> {
    conn: AsyncPgConnection,
    keys: Keyring,
    is_dry_run: bool,
    report: RotationReport,
    /// The namespaces whose subscriptions were changed.
    changed: BTreeSet<NamespaceId>,
    /// The namespaces with an entry in the audit log.
    recorded: BTreeSet<NamespaceId>,
    on_progress: Box<dyn FnMut(&RotationReport) + 'a>,
}

impl<'a> KeyRotation<'a> {
    /// Connects to the database. `on_progress` is called after each step. A dry run changes nothing.
    pub(crate) async fn open(
        url: &str,
        keys: Keyring,
        is_dry_run: bool,
        on_progress: impl FnMut(&RotationReport) + 'a,
    ) -> Result<Self, Error> {
        Ok(KeyRotation {
            conn: connect_to_rotate(url).await?,
            keys,
            is_dry_run,
            report: RotationReport::default(),
            changed: BTreeSet::new(),
            recorded: BTreeSet::new(),
            on_progress: Box::new(on_progress),
        })
    }

    /// Runs passes until nothing is left to do, or [`MAX_PASSES`] have run. A dry run is one pass.
    ///
    /// A transaction that is running may have copied a value under the old key, and no pass sees the copy before the
    /// commit. So only a pass counts as the last that began when the transactions of the pass before had ended. The first
    /// one never does, even if it finds nothing: an earlier rotation may have been interrupted.
    pub(crate) async fn run(mut self) -> Result<RotationReport, Error> {
        for pass in 0..MAX_PASSES {
            let replaced_before = self.report.rows_replaced;
            self.pass().await?;
            let found_nothing = self.report.rows_replaced == replaced_before && self.report.rows_left == 0;
            self.report.is_complete = found_nothing && pass > 0;
            if self.report.is_complete || self.is_dry_run {
                break;
            }
            self.wait_for_transactions().await?;
        }
        // Servers load the subscriptions again, and forget the values under the old key.
        for namespace in std::mem::take(&mut self.changed) {
            renew_generation(&mut self.conn, &Scope::new(namespace, None)).await?;
        }
        Ok(self.report)
    }

    async fn pass(&mut self) -> Result<(), Error> {
        let RotationReport { rows_read, rows_replaced, .. } = self.report;
        self.report = RotationReport { rows_read, rows_replaced, ..RotationReport::default() };
        for table in SecretTable::ALL {
            let mut last: Option<SecretRow> = None;
            loop {
                let rows = read_secret_rows(&mut self.conn, table, last.as_ref(), READ_ROWS).await?;
                let Some(end) = rows.last() else { break };
                last = Some(end.clone());
                self.report.rows_read += rows.len() as u64;
                self.renew(table, rows).await?;
                (self.on_progress)(&self.report);
            }
        }
        Ok(())
    }

    /// Encrypts the values of some rows again.
    async fn renew(&mut self, table: SecretTable, rows: Vec<SecretRow>) -> Result<(), Error> {
        let mut replacements = Vec::new();
        for row in rows {
            let Some(old) = row.text.clone() else { continue };
            let subscription = Owner::Subscription(row.namespace_id.subscription(SubscriptionId(row.owner_id)));
            let source = Owner::Source(row.namespace_id.source(SourceId(row.owner_id)));
            let of_source = |field| Binding { owner: source, field };
            let mut renewals = Vec::new();
            let new = match table {
                SecretTable::Secrets => renew_secret(&self.keys, subscription, &old, &mut renewals),
                SecretTable::Subscriptions | SecretTable::DeadLetters => {
                    renew_headers(&self.keys, subscription, &old, &mut renewals)
                }
                SecretTable::SourceSecrets => {
                    renew_source_text(&self.keys, of_source(Field::Secret), &old, &mut renewals)
                }
                SecretTable::SourceTokens => {
                    renew_source_text(&self.keys, of_source(Field::Token), &old, &mut renewals)
                }
            };
            renewals.iter().for_each(|renewal| self.count(table, &row, renewal));
            if let Some(new) = new.map_err(Error::Internal)? {
                replacements.push(Replacement { row, old, new });
            }
        }
        if self.is_dry_run {
            return Ok(());
        }
        self.record(&replacements).await?;
        for part in replacements.chunks(REPLACE_ROWS) {
            let replaced = self.replace(table, part).await?;
            self.report.rows_replaced += replaced as u64;
            self.report.rows_left += (part.len() - replaced) as u64;
            // Servers have the secrets of sources in memory as they are, and do not load them again.
            if matches!(table, SecretTable::Secrets | SecretTable::Subscriptions) {
                self.changed.extend(part.iter().map(|replacement| replacement.row.namespace_id));
            }
        }
        Ok(())
    }

    /// Writes an audit entry for each namespace whose first rows are about to be replaced.
    async fn record(&mut self, replacements: &[Replacement]) -> Result<(), Error> {
        let key_id = self.keys.first_id().map(str::to_owned);
        for Replacement { row, .. } in replacements {
            if self.recorded.insert(row.namespace_id) {
                let scope = Scope { actor: Some(ACTOR.into()), ..Scope::new(row.namespace_id, None) };
                let detail = json!({"key_id": key_id}).as_object().cloned().unwrap_or_default();
                let entry = AuditEntry { action: AuditAction::SecretsRotated, subject_id: None, detail };
                record_audit(&mut self.conn, &scope, &entry).await?;
            }
        }
        Ok(())
    }

    /// Replaces rows. A lock that is not granted in time, or a conflict, leaves them for the next pass.
    async fn replace(&mut self, table: SecretTable, replacements: &[Replacement]) -> Result<usize, Error> {
        match replace_secret_rows(&mut self.conn, table, replacements).await.map_err(Error::from) {
            Err(error) if error.is_conflict() || error.is_outage(OutageKind::TooSlow) => Ok(0),
            replaced => replaced,
        }
    }

    fn count(&mut self, table: SecretTable, row: &SecretRow, Renewal { before, readable }: &Renewal) {
        let key = match before.key_id() {
            Some(id) => FoundKey::Key(id.to_owned()),
            None if before.is_plain() => FoundKey::Plain,
            None => FoundKey::Unknown,
        };
        *self.report.found.entry((table, key)).or_default() += 1;
        if let Err(unreadable) = readable {
            self.report.unreadable_count += 1;
            if self.report.unreadable.len() < UNREADABLE_SHOWN {
                let place = match table {
                    SecretTable::DeadLetters => format!("dead letter {}", row.id),
                    SecretTable::SourceSecrets | SecretTable::SourceTokens => format!("source {}", row.owner_id),
                    SecretTable::Secrets | SecretTable::Subscriptions => format!("subscription {}", row.owner_id),
                };
                self.report.unreadable.push(format!("{place}: {unreadable}"));
            }
        }
    }

    /// Waits until all transactions that are running now have ended, or [`TRANSACTION_WAIT`] is over.
    async fn wait_for_transactions(&mut self) -> Result<(), Error> {
        let next = read_transaction_range(&mut self.conn).await?.next;
        let deadline = Instant::now() + TRANSACTION_WAIT;
        while read_transaction_range(&mut self.conn).await?.oldest < next && Instant::now() < deadline {
            tokio::time::sleep(TRANSACTION_PAUSE).await;
        }
        Ok(())
    }
}
