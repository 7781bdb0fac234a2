//! Pressing what has a label, as a person looks for it.

use serde_json::json;

use crate::support::browser::Page;

/// Waits for an element with this label, and clicks it.
pub(super) async fn press(page: &Page<'_>, css: &str, label: &str) {
    let mark = format!(
        "(() => {{ document.querySelectorAll('[data-pressed]').forEach((one) => one.removeAttribute('data-pressed')); \
          const found = [...document.querySelectorAll({})].find((one) => one.textContent.trim() === {}); \
          found?.setAttribute('data-pressed', ''); return found; }})()",
        json!(css),
        json!(label)
    );
    page.wait_until(&mark).await;
    page.click("[data-pressed]").await;
}

/// Presses a button of the page, and the one with the same label in the dialog that opens.
pub(super) async fn press_and_confirm(page: &Page<'_>, label: &str) {
    press(page, "main .actions button", label).await;
    press(page, "dialog[open] .actions button", label).await;
}
