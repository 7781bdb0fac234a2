//! Settings of the commands for the nouns of the API: what they list, show, make and change.
//!
//! Fields that are often set have flags; all others are in the JSON document that `--from` names.

mod administration;
mod intake;
mod push;

use clap::Args;

use super::{Order, PageArgs, ServerArgs};

pub use administration::{
    AuditArgs, AuditVerb, CreateNamespaceArgs, DoctorArgs, ListAuditArgs, ListOperationsArgs, NamespaceFields,
    NamespacesArgs, NamespacesVerb, OperationFilterArgs, OperationsArgs, OperationsVerb, UpdateNamespaceArgs,
    UsageArgs,
};
pub use intake::{
    CreateSourceArgs, DeleteTypeArgs, PutTypeArgs, RotateSourceSecretArgs, ShowTypeArgs, SourceFields, SourcesArgs,
    SourcesVerb, TypesArgs, TypesVerb, UpdateSourceArgs,
};
pub use push::{
    ActOnDeliveriesArgs, CheckSubscriptionArgs, CreateSubscriptionArgs, DeadLetterFilterArgs, DeadLettersArgs,
    DeadLettersVerb, DeliveriesArgs, DeliveriesVerb, DeliveryFilterArgs, ListDeadLettersArgs, ListDeliveriesArgs,
    ReplayArgs, RotateSubscriptionSecretArgs, SubscriptionFields, SubscriptionsArgs, SubscriptionsVerb,
    UpdateSubscriptionArgs,
};

/// How much of a list to print, and in which order.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub pages: PageArgs,

    /// Order [default: newest first for records, else by id or name].
    #[arg(long)]
    pub order: Option<Order>,

    #[command(flatten)]
    pub server: ServerArgs,
}

/// A list of things that are in use or not.
#[derive(Debug, Clone, Args)]
pub struct ListActiveArgs {
    /// Only those that are active, or only those that are not [default: all].
    #[arg(long, value_name = "BOOL")]
    pub active: Option<bool>,

    #[command(flatten)]
    pub list: ListArgs,
}

/// One thing, by its id.
#[derive(Debug, Clone, Args)]
pub struct IdArgs {
    /// Its id.
    pub id: i64,

    #[command(flatten)]
    pub server: ServerArgs,
}

/// One thing, by its name.
#[derive(Debug, Clone, Args)]
pub struct NameArgs {
    /// Its name.
    pub name: String,

    #[command(flatten)]
    pub server: ServerArgs,
}

/// Something that is done to one thing, and why.
#[derive(Debug, Clone, Args)]
pub struct ReasonArgs {
    /// Its id.
    pub id: i64,

    /// Why; it is required, and recorded.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,

    #[command(flatten)]
    pub server: ServerArgs,
}

/// What to delete.
#[derive(Debug, Clone, Args)]
pub struct DeleteArgs {
    /// Its id.
    pub id: i64,

    /// Do not ask before. Required where nobody can be asked: without a terminal.
    #[arg(long, short = 'y')]
    pub yes: bool,

    #[command(flatten)]
    pub server: ServerArgs,
}

/// A document that is sent as it is.
#[derive(Debug, Clone, Args)]
pub struct FromArgs {
    /// File with the whole body as JSON, sent as it is; - is standard input.
    #[arg(long, value_name = "FILE")]
    pub from: Option<String>,
}
