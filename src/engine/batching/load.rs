//! How much each namespace asks of a batcher, and whether one of them is dominant.

use std::collections::HashMap;

use crate::domain::ids::NamespaceId;

/// The maximum weight, in rows, of an express batch, and of the calls of a namespace that counts as quiet. A namespace
/// is dominant only beyond it: whoever waits for a smaller batch does not wait for long.
pub(super) const EXPRESS_WEIGHT: usize = 20;

/// The weight of the calls of a batch, by namespace.
pub(super) type BatchWeights = HashMap<NamespaceId, usize>;

/// The weight of the calls that wait or are in flight, by namespace.
#[derive(Default)]
pub(super) struct Load {
    of: HashMap<NamespaceId, Weights>,
    total: usize,
    in_flight: usize,
    /// The namespace that last had more than half when it called. Only it is taken for dominant, so that nobody has to
    /// search for the largest; another one is noticed at its next call.
    loudest: Option<NamespaceId>,
}

#[derive(Default)]
struct Weights {
    /// Of the calls that wait or are in flight.
    all: usize,
    in_flight: usize,
}

impl Load {
    /// Adds a call that waits.
    pub(super) fn add(&mut self, namespace: NamespaceId, weight: usize) {
        let weights = self.of.entry(namespace).or_default();
        weights.all += weight;
        self.total += weight;
        if weights.all * 2 > self.total {
            self.loudest = Some(namespace);
        }
    }

    /// Removes a call that waited and will not run.
    pub(super) fn remove(&mut self, namespace: NamespaceId, weight: usize) {
        self.total -= weight;
        if let Some(weights) = self.of.get_mut(&namespace) {
            weights.all -= weight;
            if weights.all == 0 {
                self.of.remove(&namespace);
            }
        }
    }

    /// Counts calls that waited as in flight.
    pub(super) fn take(&mut self, batch: &BatchWeights) {
        for (namespace, weight) in batch {
            self.of.entry(*namespace).or_default().in_flight += weight;
            self.in_flight += weight;
        }
    }

    /// Returns the weight of all calls that are in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns the weight of all calls that wait.
    pub(super) fn waiting(&self) -> usize {
        self.total - self.in_flight
    }

    /// Removes calls that were in flight.
    pub(super) fn end(&mut self, batch: &BatchWeights) {
        for (namespace, weight) in batch {
            if let Some(weights) = self.of.get_mut(namespace) {
                weights.in_flight -= weight;
            }
            self.in_flight -= weight;
            self.remove(*namespace, *weight);
        }
    }

    pub(super) fn has_in_flight(&self, namespace: NamespaceId) -> bool {
        self.of.get(&namespace).is_some_and(|weights| weights.in_flight > 0)
    }

    /// Returns whether a namespace asks for little, while others have calls as well.
    pub(super) fn is_small_beside_others(&self, namespace: NamespaceId) -> bool {
        self.of.len() > 1 && self.weight_of(namespace) <= EXPRESS_WEIGHT
    }

    /// Returns the namespace that has more than half of all calls, by weight.
    pub(super) fn dominant(&self) -> Option<NamespaceId> {
        let loudest = self.loudest?;
        let weight = self.weight_of(loudest);
        (weight > EXPRESS_WEIGHT && weight * 2 > self.total).then_some(loudest)
    }

    pub(super) fn has_calls_of(&self, namespace: NamespaceId) -> bool {
        self.weight_of(namespace) > 0
    }

    fn weight_of(&self, namespace: NamespaceId) -> usize {
        self.of.get(&namespace).map_or(0, |weights| weights.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOUD: NamespaceId = NamespaceId(1);
    const QUIET: NamespaceId = NamespaceId(2);

    fn load(calls: &[(NamespaceId, usize)]) -> Load {
        let mut load = Load::default();
        calls.iter().for_each(|(namespace, weight)| load.add(*namespace, *weight));
        load
    }

    #[test]
    fn a_namespace_is_dominant_with_more_than_half_of_the_weight() {
        assert_eq!(load(&[(LOUD, 21), (QUIET, 20)]).dominant(), Some(LOUD));
        assert_eq!(load(&[(LOUD, 21), (QUIET, 21)]).dominant(), None, "two equal ones");
        assert_eq!(load(&[(LOUD, 20), (QUIET, 1)]).dominant(), None, "no batch would be large");
        assert!(load(&[(LOUD, 60), (QUIET, 20)]).is_small_beside_others(QUIET));
        assert!(!load(&[(LOUD, 60), (QUIET, 21)]).is_small_beside_others(QUIET));
        assert!(!load(&[(QUIET, 1)]).is_small_beside_others(QUIET), "there is no other");
    }

    #[test]
    fn of_many_equal_namespaces_none_is_dominant() {
        let calls: Vec<(NamespaceId, usize)> = (0..200).map(|number| (NamespaceId(number), 5)).collect();
        assert_eq!(load(&calls).dominant(), None);
    }

    #[test]
    fn calls_count_until_their_batch_has_ended() {
        let mut load = load(&[(LOUD, 50), (LOUD, 10), (QUIET, 1)]);
        let batch = BatchWeights::from([(LOUD, 50), (QUIET, 1)]);
        load.take(&batch);
        assert!(load.has_in_flight(LOUD) && load.has_in_flight(QUIET) && load.dominant() == Some(LOUD));
        load.end(&batch);
        assert!(!load.has_in_flight(LOUD) && load.dominant().is_none(), "10 rows of the loud one are left");
        load.remove(LOUD, 10);
        assert!(load.total == 0 && load.of.is_empty());
    }
}
