//! Pictures of pages, for people: `scripts/screenshots` names the pages and the folder.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::support::browser::{Browser, Extent};
use crate::support::{App, database, realistic_day, until};

/// A desktop, a tablet and a phone.
const SIZES: [(u32, u32); 3] = [(1440, 900), (1024, 768), (390, 844)];

/// Returns a name for the pictures of a path: `events-status-FAILED` for `/events?status=FAILED`.
fn name_of(path: &str) -> String {
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.collect::<Vec<_>>().join("-");
    if name.is_empty() { "index".into() } else { name }
}

/// Takes pictures of pages in all sizes, light and dark. Returns the files.
async fn take(app: &App, paths: &[&str], folder: &Path, extent: Extent) -> Vec<PathBuf> {
    let mut taken = Vec::new();
    let browser = Browser::start().await;
    for path in paths {
        let page = browser.open(&format!("{}{path}", app.base)).await;
        for (width, height) in SIZES {
            page.resize(width, height).await;
            for (scheme, dark) in [("light", false), ("dark", true)] {
                page.prefer_dark(dark).await;
                let file = folder.join(format!("{}-{width}-{scheme}.png", name_of(path)));
                page.screenshot(&file, extent).await;
                taken.push(file);
            }
        }
    }
    taken
}

/// What was done in the 24 hours before: the program fills a server within a minute, and charts of that are flat.
const EARLIER_TODAY: &str = "
    INSERT INTO waybill.stats_minutes
    SELECT minute, 0, 1, 1, published, published, published - failed, failed, failed / 2, 0, 0, 0, pushes, failed / 4, 0, '',
           ARRAY[middle - 4, middle, middle + 4, middle + 8, middle + 14]::smallint[],
           ARRAY[published / 6, published / 3, published / 4, published / 5, failed]
    FROM (SELECT date_trunc('minute', now()) - n * interval '1 minute' AS minute,
                 (900 - 300 * cos(n * pi() / 720) + 120 * sin(n / 9.0) + 90 * random())::integer AS published,
                 (4 + 12 * random())::integer AS failed, (27 + 2 * sin(n / 17.0) + random())::integer AS middle, (250 + 60 * sin(n / 14.0) + 30 * random())::integer AS pushes
          FROM generate_series(1, 1440) n) m";

/// Waits until a worker of the realistic day looks as if it had gone: 30 seconds after its last sign of life.
async fn until_a_worker_is_stale(app: &App) {
    until("a worker is stale", async || app.get("/workers").await.expect(200).text.contains("\"stale\":true")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_are_taken_in_three_sizes_light_and_dark() {
    let app = App::start().await;
    let (temporary, given) = (TempDir::new().expect("a folder"), env::var("WAYBILL_SCREENSHOT_PATHS"));
    let taken = if let Ok(paths) = &given {
        realistic_day::fill(&app, None).await;
        database::execute(&app.url, EARLIER_TODAY).await;
        until_a_worker_is_stale(&app).await;
        let folder = PathBuf::from(env::var_os("WAYBILL_SCREENSHOT_FOLDER").expect("a folder"));
        let extent = if env::var_os("WAYBILL_SCREENSHOT_VISIBLE").is_some() { Extent::Window } else { Extent::Page };
        take(&app, &paths.split_whitespace().collect::<Vec<_>>(), &folder, extent).await
    } else {
        let path = "/problems/invalid_request";
        let mut taken = take(&app, &[path], temporary.path(), Extent::Window).await;
        taken.extend(take(&app, &[path], temporary.path(), Extent::Page).await);
        taken
    };
    for file in taken {
        let bytes = fs::read(&file).expect("a picture");
        assert!(bytes.starts_with(b"\x89PNG"), "{}", file.display());
        let width = u32::from_be_bytes(bytes[16..20].try_into().expect("four bytes"));
        assert!(file.display().to_string().contains(&format!("-{width}-")), "{} is {width} wide", file.display());
    }
}

#[test]
fn pictures_are_called_after_the_path() {
    assert_eq!(name_of("/"), "index");
    assert_eq!(name_of("/dashboard/events?status=FAILED&tags=a,b"), "dashboard-events-status-FAILED-tags-a-b");
}
