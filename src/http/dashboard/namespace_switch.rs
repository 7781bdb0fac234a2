//! The switch between namespaces, in the bar of every page, for those who may look at all.

use maud::{Markup, html};

use super::parts::with_parameter;
use super::viewer::Viewer;

/// Returns the switch, or nothing for those who may look only at the namespace of their key. Without script, it is a
/// link to the list of namespaces.
pub(super) fn namespace_switch(viewer: &Viewer) -> Markup {
    let Some(list) = &viewer.namespaces else { return html! {} };
    let present = viewer.scope.namespace;
    let is_listed = list.names.iter().any(|(id, _)| *id == present);
    html! {
        select.namespaces data-goto aria-label="Namespace" autocomplete="off" {
            @if let Some(name) = viewer.namespace.as_deref().filter(|_| !is_listed) {
                option selected value=(address_in(&viewer.address, name)) { (name) }
            }
            @for (id, name) in &list.names {
                option selected[*id == present] value=(address_in(&viewer.address, name)) { (name) }
            }
            @if !list.is_whole { option value=(viewer.link("/ui/namespaces")) { "all namespaces" } }
        }
        noscript { a href=(viewer.link("/ui/namespaces")) { "Namespaces" } }
    }
}

/// Returns the address of the same page in another namespace. Ids and cursors mean nothing there: a page about one thing
/// becomes the list of such things.
fn address_in(address: &str, namespace: &str) -> String {
    let (path, _) = address.split_once('?').unwrap_or((address, ""));
    let list: Vec<&str> = path.splitn(4, '/').collect();
    match list.as_slice() {
        ["", "ui", noun, _] => format!("/ui/{noun}?namespace={namespace}"),
        _ => with_parameter(&with_parameter(address, "after", ""), "namespace", namespace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_namespace_has_the_same_pages_but_other_ids() {
        for (address, expected) in [
            ("/", "/?namespace=b"),
            ("/?span=7d&namespace=a", "/?span=7d&namespace=b"),
            ("/ui/events?q=tag%3Ax&after=c&namespace=a", "/ui/events?q=tag%3Ax&namespace=b"),
            ("/ui/events/17?namespace=a", "/ui/events?namespace=b"),
            ("/ui/event-types/a%2Fb?version=2", "/ui/event-types?namespace=b"),
        ] {
            assert_eq!(address_in(address, "b"), expected);
        }
    }
}
