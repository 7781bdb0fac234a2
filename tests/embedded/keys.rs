//! `waybill keys`, and servers that refuse to start without a key.

use std::process::Command;

use serde_json::Value;

use super::{run, start, waybill};
use crate::support::process::Process;
use crate::support::{App, ClusterDir, database, until};

/// Returns a command with this database.
fn on(url: &str, arguments: &[&str]) -> Command {
    let mut command = waybill(arguments);
    command.env("DATABASE_URL", url);
    command
}

/// Runs `waybill keys` against a server. Returns what it printed.
#[track_caller]
fn keys(app: &App, key: Option<&str>, arguments: &[&str]) -> String {
    let (ended, stdout) = run(command(app, key, arguments));
    assert!(ended.status.success(), "{}", ended.stderr);
    stdout
}

fn command(app: &App, key: Option<&str>, arguments: &[&str]) -> Command {
    let mut command = waybill(&[&["keys"], arguments].concat());
    command.env("WAYBILL_URL", &app.base).envs(key.map(|key| ("WAYBILL_KEY", key)));
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_others_can_reach_does_not_start_without_a_key() {
    let url = database::migrated().await;
    let serve = |flags: &[&str]| Process::spawn(on(&url, &[&["serve", "--bind", "0.0.0.0:0"], flags].concat()));
    let ended = serve(&[]).err().expect("it does not start");
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("\n    waybill keys create --bootstrap\n"), "{}", ended.stderr);
    let Ok(open) = serve(&["--open"]) else { panic!("--open lets it start") };
    assert!(open.stderr().contains("OPEN: no API key has been made"), "{}", open.stderr());
    open.stop().await;
    // The command that it prints is all that is needed.
    let (ended, key) = run(on(&url, &["keys", "create", "--bootstrap"]));
    assert!(ended.status.success(), "{}", ended.stderr);
    let Ok(server) = serve(&[]) else { panic!("with a key it starts") };
    assert!(!server.stderr().contains("API key"), "{}", server.stderr());
    let port = server.app.base.rsplit(':').next().expect("a port");
    let app = App { base: format!("http://127.0.0.1:{port}"), ..server.app.as_stranger() };
    app.get("/events").await.problem(401, "unauthenticated");
    app.sending(key.trim()).get("/events").await.expect(200);
    server.stop().await;
}

/// As if the database were replaced by one in which no key was ever made. A server on loopback sees that and opens.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_others_can_reach_stays_closed_when_its_database_has_no_keys_any_more() {
    let url = database::migrated().await;
    let (ended, key) = run(on(&url, &["keys", "create", "--bootstrap"]));
    assert!(ended.status.success(), "{}", ended.stderr);
    let serve = |address: &str| Process::start(on(&url, &["serve", "--poll-interval-ms", "50", "--bind", address]));
    let (reachable, local) = (serve("0.0.0.0:0"), serve("127.0.0.1:0"));
    let port = reachable.app.base.rsplit(':').next().expect("a port");
    let app = App { base: format!("http://127.0.0.1:{port}"), ..reachable.app.as_stranger() };
    for server in [&app, &local.app] {
        server.get("/events").await.problem(401, "unauthenticated");
        server.sending(key.trim()).get("/events").await.expect(200);
    }
    let replaced = "DELETE FROM waybill.api_key_secrets; DELETE FROM waybill.api_keys; \
         UPDATE waybill.key_catalog SET is_required = false, generation = generation + 1";
    database::execute(&url, replaced).await;
    until("the open one notices", async || local.app.get("/events").await.status == 200).await;
    until("the other one notices", async || reachable.stderr().contains("the database has no API key any more")).await;
    app.get("/events").await.problem(401, "unauthenticated");
    app.sending(key.trim()).get("/events").await.problem(401, "unauthenticated");
    // A key that is made then is good at once.
    let (_, key) = run(on(&url, &["keys", "create", "--bootstrap"]));
    app.sending(key.trim()).get("/events").await.expect(200);
    local.stop().await;
    reachable.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_on_loopback_says_that_it_is_open() {
    let url = database::migrated().await;
    let server = Process::start(on(&url, &["serve", "--bind", "127.0.0.1:0"]));
    assert!(server.stderr().contains("everybody on this machine may do everything"), "{}", server.stderr());
    server.app.get("/events").await.expect(200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_key_is_made_in_the_embedded_database_whether_its_server_runs_or_not() {
    let cluster_dir = ClusterDir::with_cluster();
    let bootstrap = |name: &str| {
        let mut command = waybill(&["keys", "create", "--bootstrap", "--name", name, "--data-dir"]);
        command.arg(cluster_dir.data_dir());
        let (ended, stdout) = run(command);
        assert!(ended.status.success(), "{}", ended.stderr);
        stdout.trim().to_owned()
    };
    let first = bootstrap("first");
    assert_eq!(cluster_dir.postmaster(), None, "PostgreSQL is stopped afterwards");
    let server = start(&cluster_dir);
    let second = bootstrap("second");
    for key in [first, second] {
        server.app.sending(&key).get("/keys").await.expect(200);
    }
    server.app.get("/keys").await.problem(401, "unauthenticated");
    server.stop().await;
}

/// A wrong `--data-dir` would otherwise become one with a database of its own, and the key would open no server.
#[tokio::test(flavor = "multi_thread")]
async fn commands_on_a_data_directory_without_a_database_create_none_unless_told_to() {
    let cluster_dir = ClusterDir::new();
    let at = |arguments: &[&str]| {
        let mut command = waybill(arguments);
        command.arg("--data-dir").arg(cluster_dir.data_dir());
        run(command)
    };
    for arguments in [&["keys", "create", "--bootstrap"][..], &["secrets", "rotate", "--dry-run"]] {
        let (ended, stdout) = at(arguments);
        assert_eq!((ended.status.code(), stdout.as_str()), (Some(1), ""), "{arguments:?}: {}", ended.stderr);
        let place = cluster_dir.data_dir().display().to_string();
        assert!(ended.stderr.contains(&format!("there is no database in {place}")), "{}", ended.stderr);
        assert!(!cluster_dir.data_dir().exists(), "{arguments:?}");
    }
    let (ended, _) = at(&["keys", "create", "--bootstrap"]);
    let command =
        format!("\n    waybill keys create --bootstrap --init --data-dir '{}'\n", cluster_dir.data_dir().display());
    assert!(ended.stderr.contains(&command), "{}", ended.stderr);
    let (ended, key) = at(&["keys", "create", "--bootstrap", "--init"]);
    assert!(ended.status.success(), "{}", ended.stderr);
    let server = start(&cluster_dir);
    server.app.sending(key.trim()).get("/keys").await.expect(200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_bootstrap_needs_another_name() {
    let url = database::migrated().await;
    let create = ["keys", "create", "--bootstrap"];
    assert!(run(on(&url, &create)).0.status.success());
    let (ended, stdout) = run(on(&url, &create));
    assert!(!ended.status.success() && stdout.is_empty());
    assert!(ended.stderr.contains("choose another --name"), "{}", ended.stderr);
    for (flag, value) in [("--scopes", "fly"), ("--tags", "a*"), ("--expires-at", "soon"), ("--name", " ")] {
        let (ended, _) = run(on(&url, &[&create[..], &[flag, value]].concat()));
        assert!(ended.stderr.contains(flag), "{flag}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bootstrap_that_would_lock_everybody_out_is_refused() {
    let url = database::migrated().await;
    let bootstrap = |flags: &[&str]| run(on(&url, &[&["keys", "create", "--bootstrap"], flags].concat())).0;
    let work = ["--scopes", "work", "--tags", "billing.*", "--name", "worker"];
    for (flags, hint) in [
        (&["--expires-at", "2020-01-01T00:00:00Z"][..], "--expires-at must be in the future"),
        (&["--tags", "billing.*"], "--tags must not be given with the scope admin"),
        (&work, "--scopes must include admin"),
    ] {
        let ended = bootstrap(flags);
        assert!(!ended.status.success() && ended.stderr.contains(hint), "{hint}: {}", ended.stderr);
    }
    assert_eq!(database::count(&url, "SELECT count(*) FROM waybill.api_keys").await, 0);
    assert!(bootstrap(&[]).status.success());
    let ended = bootstrap(&work);
    assert!(ended.status.success(), "with an administrator it is made: {}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bootstrap_makes_no_key_without_its_audit_entry() {
    let url = database::migrated().await;
    database::execute(&url, "ALTER TABLE waybill.audit_log RENAME TO hidden").await;
    let (ended, stdout) = run(on(&url, &["keys", "create", "--bootstrap"]));
    assert!(!ended.status.success() && stdout.is_empty(), "{}", ended.stderr);
    assert_eq!(database::count(&url, "SELECT count(*) FROM waybill.api_keys").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rate_of_a_key_is_set_and_changed_on_the_command_line() {
    let app = App::start().await;
    let admin = keys(&app, None, &["create"]);
    let admin = Some(admin.trim());
    let rate = ["--publishes-per-second", "5", "--publish-burst", "20"];
    let create = [&["create", "--name", "shop", "--scopes", "publish", "--json"], &rate[..]].concat();
    let made: Value = serde_json::from_str(&keys(&app, admin, &create)).expect("JSON");
    assert_eq!((&made["publishes_per_second"], &made["publish_burst"]), (&5.into(), &20.into()));
    let id = made["id"].to_string();
    for (flags, text) in [
        (["--publishes-per-second", "7"], "7 events per second, 20 at once"),
        (["--publish-burst", "0"], "7 events per second"),
        (["--publishes-per-second", "0"], "as much as its namespace may"),
    ] {
        let printed = keys(&app, admin, &[&["update", &id], &flags[..]].concat());
        assert_eq!(printed, format!("key {id} (shop) may publish {text}\n"));
    }
    let update = [&["update", &id, "--json"], &rate[..]].concat();
    let updated: Value = serde_json::from_str(&keys(&app, admin, &update)).expect("JSON");
    assert_eq!((&updated["publishes_per_second"], &updated["publish_burst"]), (&5.into(), &20.into()));
    for wrong in [&["update", &id][..], &["create", "--publish-burst", "5"]] {
        let (ended, _) = run(command(&app, admin, wrong));
        assert!(ended.status.code() == Some(2) && ended.stderr.contains("--publish"), "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_made_in_the_database_has_the_rate_that_is_asked_for() {
    let url = database::migrated().await;
    let bootstrap = |rate: &str| run(on(&url, &["keys", "create", "--bootstrap", "--publishes-per-second", rate])).0;
    let ended = bootstrap("0");
    assert!(!ended.status.success() && ended.stderr.contains("--publishes-per-second must be"), "{}", ended.stderr);
    assert!(bootstrap("5").status.success());
    let rated = "SELECT count(*) FROM waybill.api_keys WHERE publishes_per_second = 5 AND publish_burst IS NULL";
    assert_eq!(database::count(&url, rated).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_made_listed_rotated_and_revoked_over_http() {
    let app = App::start().await;
    let admin = keys(&app, None, &["create"]);
    let admin = Some(admin.trim());
    let create = [
        "create",
        "--name",
        "billing",
        "--scopes",
        "publish,work",
        "--tags",
        "billing.*",
        "--expires-at",
        "2099-01-01T00:00:00Z",
    ];
    let made = keys(&app, admin, &create);
    app.sending(made.trim()).publish_tagged("billing.a").await;
    app.sending(made.trim()).get("/events").await.problem(403, "scope_missing");
    let listed = keys(&app, admin, &["list"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("ID") && lines.len() == 3, "{listed}");
    for word in ["billing", &made[..9], "publish,work", "billing.*", "until 2099-01-01"] {
        assert!(lines[2].contains(word), "{word} in {listed}");
    }
    let json: Value = serde_json::from_str(&keys(&app, admin, &["list", "--json"])).expect("JSON");
    let id = json["keys"][1]["id"].to_string();
    let new = keys(&app, admin, &["rotate", &id, "--overlap-seconds", "0"]);
    app.sending(made.trim()).publish_response().await.problem(401, "key_expired");
    app.sending(new.trim()).publish_tagged("billing.a").await;
    assert_eq!(keys(&app, admin, &["revoke", &id]), format!("key {id} (billing) is revoked\n"));
    app.sending(new.trim()).publish_response().await.problem(401, "key_revoked");
    let (ended, _) = run(command(&app, None, &["list"]));
    assert!(!ended.status.success() && ended.stderr.contains("WAYBILL_KEY"), "{}", ended.stderr);
    let (ended, _) = run(command(&app, admin, &["revoke", "4711"]));
    assert!(ended.stderr.contains("there is no key 4711"), "{}", ended.stderr);
}

impl App {
    /// Publishes an event, and returns the response.
    async fn publish_response(&self) -> crate::support::Reply {
        self.post("/events", &serde_json::json!({"title": "t", "tags": "billing.a"})).await
    }
}
