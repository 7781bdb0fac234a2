//! Settings of `waybill operations`, `waybill namespaces`, `waybill audit`, `waybill usage` and `waybill doctor`.

use clap::{Args, Subcommand};

use super::{FromArgs, IdArgs, ListArgs, NameArgs};
use crate::config::ServerArgs;

#[derive(Debug, Clone, Args)]
pub struct OperationsArgs {
    #[command(subcommand)]
    pub verb: OperationsVerb,
}

#[derive(Debug, Clone, Subcommand)]
pub enum OperationsVerb {
    /// List work on many items, the newest first.
    List(ListOperationsArgs),
    /// Show an operation.
    Show(IdArgs),
    /// Stop an operation. What it has done stays done.
    Cancel(IdArgs),
    /// Follow an operation to its end.
    Watch(IdArgs),
}

/// Which operations.
#[derive(Debug, Clone, Args)]
pub struct OperationFilterArgs {
    /// Status: RUNNING, COMPLETED, CANCELLED or FAILED.
    #[arg(long, value_name = "STATUS")]
    pub status: Option<String>,

    /// What they do, such as `retry_events`.
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct ListOperationsArgs {
    #[command(flatten)]
    pub filter: OperationFilterArgs,

    #[command(flatten)]
    pub list: ListArgs,
}

#[derive(Debug, Clone, Args)]
pub struct NamespacesArgs {
    #[command(subcommand)]
    pub verb: NamespacesVerb,
}

#[derive(Debug, Clone, Subcommand)]
pub enum NamespacesVerb {
    /// List namespaces.
    List(ListArgs),
    /// Show a namespace and its settings.
    Show(NameArgs),
    /// Make a namespace.
    Create(CreateNamespaceArgs),
    /// Change the settings of a namespace.
    Update(UpdateNamespaceArgs),
}

/// The settings that are often set.
#[derive(Debug, Clone, Args)]
pub struct NamespaceFields {
    /// Whether only events of declared types are accepted.
    #[arg(long, value_name = "BOOL")]
    pub strict_event_types: Option<bool>,

    /// What is not shown of events, such as payload.card, separated by commas.
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    pub redact: Option<Vec<String>>,
}

#[derive(Debug, Clone, Args)]
pub struct CreateNamespaceArgs {
    /// Name of the namespace, unless --from has it.
    pub name: Option<String>,

    #[command(flatten)]
    pub fields: NamespaceFields,

    #[command(flatten)]
    pub from: FromArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct UpdateNamespaceArgs {
    pub name: String,

    #[command(flatten)]
    pub fields: NamespaceFields,

    #[command(flatten)]
    pub from: FromArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct AuditArgs {
    #[command(subcommand)]
    pub verb: AuditVerb,
}

#[derive(Debug, Clone, Subcommand)]
pub enum AuditVerb {
    /// List who changed what, the newest first.
    List(ListAuditArgs),
}

#[derive(Debug, Clone, Args)]
pub struct ListAuditArgs {
    /// What was done, such as key.created.
    #[arg(long, value_name = "ACTION")]
    pub action: Option<String>,

    /// Name of the key of who did it.
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,

    /// At this time or later: a time, or how long ago, such as 15m, 24h or 7d.
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,

    /// Before this time.
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,

    #[command(flatten)]
    pub list: ListArgs,
}

#[derive(Debug, Clone, Args)]
pub struct UsageArgs {
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    /// Let warnings, and what is unknown, count as problems.
    #[arg(long)]
    pub strict: bool,

    #[command(flatten)]
    pub server: ServerArgs,
}
