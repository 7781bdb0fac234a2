//! How long requests take, by endpoint and class of status.
//!
//! The endpoints are known when the server starts, so a request finds its histogram by two indices, and no label is ever
//! made from what a client sends. Series appear with their first request: a server has more than a hundred endpoints, and
//! most of them are never called.

use std::sync::OnceLock;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;

use super::histogram::Histogram;

/// The upper bounds of the buckets, in seconds.
const BUCKETS: [f64; 9] = [0.001, 0.0025, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0, 30.0];

/// The label value of requests that match no endpoint.
const OTHER: &str = "other";

/// The classes of status codes, in the order of their first digit.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The position of an endpoint in the list that the server was started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointIndex(pub usize);

/// The histograms of all endpoints.
#[derive(Debug, Default)]
pub struct RequestDurations {
    endpoints: OnceLock<Box<[EndpointDurations]>>,
    unmatched: EndpointDurations,
}

#[derive(Debug)]
struct EndpointDurations {
    method: String,
    /// The pattern of the path, such as `/events/{id}`.
    route: &'static str,
    classes: [OnceLock<Histogram>; CLASSES.len()],
}

impl Default for EndpointDurations {
    fn default() -> Self {
        EndpointDurations::new(OTHER.to_owned(), OTHER)
    }
}

impl EndpointDurations {
    fn new(method: String, route: &'static str) -> Self {
        EndpointDurations { method, route, classes: Default::default() }
    }

    fn observe(&self, status: u16, seconds: f64) {
        let class = usize::from(status / 100).clamp(1, CLASSES.len()) - 1;
        self.classes[class].get_or_init(|| Histogram::new(&BUCKETS)).observe(seconds);
    }
}

impl RequestDurations {
    /// Sets the endpoints, each with its method and path. Only the first call has an effect.
    pub fn set_endpoints(&self, endpoints: impl IntoIterator<Item = (String, &'static str)>) {
        let durations = endpoints.into_iter().map(|(method, route)| EndpointDurations::new(method, route));
        let _ = self.endpoints.set(durations.collect());
    }

    /// Records a request to an endpoint, or to none.
    pub fn observe(&self, endpoint: Option<EndpointIndex>, status: u16, seconds: f64) {
        let endpoints = self.endpoints.get().map(|endpoints| &**endpoints).unwrap_or_default();
        let endpoint = endpoint.and_then(|EndpointIndex(index)| endpoints.get(index));
        endpoint.unwrap_or(&self.unmatched).observe(status, seconds);
    }
}

impl Collector for RequestDurations {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Time from the head of a request to that of its response, with the wait of long polls";
        let mut family =
            encoder.encode_descriptor("http_request_duration_seconds", help, None, MetricType::Histogram)?;
        let endpoints = self.endpoints.get().into_iter().flatten().chain([&self.unmatched]);
        for EndpointDurations { method, route, classes } in endpoints {
            for (class, status) in classes.iter().zip(CLASSES) {
                if let Some(histogram) = class.get() {
                    let labels = [("method", method.as_str()), ("route", route), ("status", status)];
                    histogram.encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}
