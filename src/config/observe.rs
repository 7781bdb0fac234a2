//! Settings of `waybill workers`, `tags`, `stats` and `top`.

use clap::Args;

use super::{PageArgs, ServerArgs};

#[derive(Debug, Clone, Args)]
pub struct WorkersArgs {
    #[command(flatten)]
    pub pages: PageArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct TagsArgs {
    #[command(flatten)]
    pub pages: PageArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct StatsArgs {
    /// Only this tag.
    #[arg(long)]
    pub tag: Option<String>,

    /// Show what was done over time instead of the present state.
    #[arg(long)]
    pub history: bool,

    /// Where the history begins: a time, or how long ago, such as 90s, 15m, 24h or 7d [default: 1h].
    #[arg(long, value_name = "TIME", requires = "history")]
    pub from: Option<String>,

    /// Time between two points of the history: 1m, 5m, 10m, 15m, 30m, 1h, 3h, 6h, 12h or 1d [default: by its length].
    #[arg(long, requires = "history")]
    pub step: Option<String>,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    /// Seconds between two looks at the server.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = parse_interval)]
    pub interval: f64,

    #[command(flatten)]
    pub server: ServerArgs,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.2..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("must be between 0.2 and 3600".to_owned()),
    }
}
