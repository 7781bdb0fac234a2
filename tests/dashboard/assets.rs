//! The files of the pages, and what a page may load.

use crate::support::App;
use crate::support::ui_pages::LISTS_AND_FORMS;

/// Returns the values of an attribute in a page.
fn values_of<'a>(page: &'a str, attribute: &str) -> Vec<&'a str> {
    page.split(&format!(" {attribute}=\"")).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_loads_only_files_of_this_server_and_runs_nothing_of_its_own() {
    let app = App::start().await;
    app.publish_tagged("reports").await;
    // The page of a session is outside the frame, and has no script at all.
    for path in LISTS_AND_FORMS.into_iter().filter(|path| *path != "/ui/session") {
        let page = app.get(path).await.expect(200);
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
        assert_eq!(page.header("cache-control"), Some("no-store"), "{path}");
        let policy = page.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        for address in values_of(&page.text, "src").into_iter().chain(values_of(&page.text, "href")) {
            assert!(address.starts_with('/') || address.starts_with('#'), "{path}: {address}");
        }
        assert!(!page.text.contains(" style=") && !page.text.contains("<style"), "{path} has inline styles");
        assert!(!page.text.contains(" onclick=") && page.text.matches("<script").count() == 4, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_have_a_hash_in_their_names_and_are_kept_for_ever() {
    let app = App::start().await;
    let page = app.get("/ui/events").await.expect(200).text;
    let files: Vec<&str> = values_of(&page, "src")
        .into_iter()
        .chain(values_of(&page, "href"))
        .filter(|path| path.starts_with("/assets/"))
        .collect();
    assert_eq!(files.len(), 6, "{files:?}");
    for path in files {
        let file = app.get(path).await.expect(200);
        assert_eq!(file.header("cache-control"), Some("public, max-age=31536000, immutable"), "{path}");
        assert_eq!(file.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert!(!file.text.contains("http://") || path.contains("icon"), "{path} names another server");
    }
    app.get("/assets/dashboard.css").await.problem(404, "route_not_found");
}
