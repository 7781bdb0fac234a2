//! Gauges that are read from the database. While it does not answer they are absent: a figure that is no longer true
//! would hide the trouble that it is there to show.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// The number of tags that have their own label value: those with the most waiting events. All others share `other`.
pub(crate) const LABELLED_TAGS: usize = 50;

/// The same for one namespace, so that it leaves room for others. It gets what they leave.
const LABELLED_PER_NAMESPACE: usize = 25;

/// The label value of tags that have none of their own.
const OTHER: &str = "other";

/// What was read from the database.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DatabaseFigures {
    /// The version of PostgreSQL.
    pub version: String,
    pub pushes_pending: i64,
    pub oldest_push_seconds: f64,
    pub breakers_open: i64,
    pub dead_letters: i64,
    pub queues: QueueFigures,
}

/// The queues of tags.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueFigures {
    /// The deepest come first. At most [`LABELLED_TAGS`] of them are shown.
    pub tags: Vec<TagFigures>,
    /// Whether these are all.
    pub is_complete: bool,
}

/// The queue of a tag.
#[derive(Debug, Clone, PartialEq)]
pub struct TagFigures {
    pub namespace_id: i32,
    pub namespace: String,
    pub tag: String,
    pub waiting: i64,
    pub oldest_seconds: f64,
    /// The number of workers that have asked for the tag lately, or `None` if there are too many to tell.
    pub workers: Option<i64>,
}

/// The latest figures, or `None` while the database does not answer.
#[derive(Debug, Default)]
pub struct DatabaseGauges(Mutex<Option<Arc<DatabaseFigures>>>);

impl DatabaseGauges {
    pub fn set(&self, figures: Option<DatabaseFigures>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = figures.map(Arc::new);
    }

    fn get(&self) -> Option<Arc<DatabaseFigures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the name of a namespace, if one of its tags is shown.
    pub(super) fn name_of(&self, namespace_id: i32) -> Option<String> {
        let figures = self.get()?;
        let of_namespace = |tag: &&TagFigures| tag.namespace_id == namespace_id;
        figures.queues.tags.iter().find(of_namespace).map(|tag| tag.namespace.clone())
    }
}

impl QueueFigures {
    /// Returns the queues that have their own label values, and the others as one.
    fn labelled(&self) -> (Vec<&TagFigures>, Option<TagFigures>) {
        let mut of_namespace: HashMap<i32, usize> = HashMap::new();
        let (first, second): (Vec<_>, Vec<_>) = self.tags.iter().partition(|tag| {
            let tags = of_namespace.entry(tag.namespace_id).or_default();
            *tags += 1;
            *tags <= LABELLED_PER_NAMESPACE
        });
        let mut own = [first, second].concat();
        let others = own.split_off(own.len().min(LABELLED_TAGS));
        let other = (!others.is_empty()).then(|| TagFigures {
            namespace_id: 0,
            // No namespace has this name, so these series belong to none.
            namespace: String::new(),
            tag: OTHER.to_owned(),
            waiting: others.iter().map(|tag| tag.waiting).sum(),
            oldest_seconds: others.iter().map(|tag| tag.oldest_seconds).fold(0.0, f64::max),
            // Of several tags, the one with the fewest workers is the one to worry about.
            workers: others.iter().map(|tag| tag.workers).min().flatten(),
        });
        (own, other)
    }
}

/// Encodes gauges one after the other.
struct Gauges<'a>(DescriptorEncoder<'a>);

impl Gauges<'_> {
    fn one<V: EncodeGaugeValue>(&mut self, name: &str, help: &str, value: V) -> Result<(), std::fmt::Error> {
        ConstGauge::new(value).encode(self.0.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }

    fn by_tag<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        queues: &QueueFigures,
        value: impl Fn(&TagFigures) -> Option<V>,
    ) -> Result<(), std::fmt::Error> {
        let (own, other) = queues.labelled();
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for figures in own.into_iter().chain(&other) {
            // The namespace is the first label: the series of one namespace are found by it.
            let labels = [("namespace", figures.namespace.as_str()), ("tag", figures.tag.as_str())];
            if let Some(value) = value(figures) {
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl Collector for DatabaseGauges {
    #[rustfmt::skip]
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut gauges = Gauges(encoder);
        let figures = self.get();
        gauges.one("database_up", "1 if the database has answered the latest query for gauges, 0 if not", i64::from(figures.is_some()))?;
        let Some(figures) = figures else { return Ok(()) };
        let mut info = gauges.0.encode_descriptor("database_info", "The version of PostgreSQL", None, MetricType::Gauge)?;
        ConstGauge::new(1i64).encode(info.encode_family(&[("version", figures.version.as_str())])?)?;
        gauges.one("pushes_pending", "Deliveries that wait for their first request or for a retry, counted up to a limit", figures.pushes_pending)?;
        gauges.one("oldest_push_seconds", "Time that the oldest due delivery has been due", figures.oldest_push_seconds)?;
        gauges.one("breakers_open", "Endpoints whose circuit breaker is open", figures.breakers_open)?;
        gauges.one("dead_letters", "Dead letters that have not been replayed, counted up to a limit", figures.dead_letters)?;
        let queues = &figures.queues;
        gauges.by_tag("queue_depth", "Events that wait under a tag, counted up to a limit", queues, |tag| Some(tag.waiting))?;
        gauges.by_tag("queue_oldest_seconds", "Time that the oldest event under a tag has waited", queues, |tag| Some(tag.oldest_seconds))?;
        gauges.by_tag("queue_workers", "Workers that have asked for a tag under which events wait in the last 90 seconds", queues, |tag| tag.workers)?;
        gauges.one("queues_complete", "1 if the gauges of queues include all tags, 0 if there are too many", i64::from(queues.is_complete))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(waiting: i64, oldest_seconds: f64, workers: Option<i64>) -> TagFigures {
        TagFigures { namespace_id: 1, namespace: "default".into(), tag: "t".into(), waiting, oldest_seconds, workers }
    }

    #[test]
    fn tags_beyond_the_limit_share_one_label_that_shows_the_worst_of_them() {
        let mut tags = vec![tag(100, 1.0, Some(9)); LABELLED_TAGS];
        let queues = QueueFigures { tags: tags.clone(), is_complete: true };
        assert_eq!(queues.labelled(), (tags.iter().collect(), None));
        tags.extend([tag(2, 50.0, Some(0)), tag(1, 80.0, Some(3))]);
        let queues = QueueFigures { tags, is_complete: true };
        let (own, other) = queues.labelled();
        let other = other.unwrap();
        assert_eq!(own.len(), LABELLED_TAGS);
        assert_eq!((other.namespace.as_str(), other.tag.as_str()), ("", OTHER));
        assert_eq!((other.waiting, other.oldest_seconds, other.workers), (3, 80.0, Some(0)));
    }

    #[test]
    fn a_namespace_with_many_deep_queues_leaves_labels_for_others() {
        let loud = vec![tag(100, 1.0, Some(9)); LABELLED_TAGS + 10];
        let quiet = TagFigures { namespace_id: 2, namespace: "quiet".into(), ..tag(1, 1.0, Some(1)) };
        let queues = QueueFigures { tags: [loud, vec![quiet.clone()]].concat(), is_complete: true };
        let (own, other) = queues.labelled();
        assert_eq!(own.len(), LABELLED_TAGS, "the loud one has what is left");
        assert!(own.contains(&&quiet));
        assert_eq!(other.unwrap().waiting, 100 * 11);
    }
}
