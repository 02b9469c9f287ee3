//! All orders of events.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::system::{Event, Seen, System};

/// How a state was come to: the one before, by number, and what happened.
type Step = (usize, Event);

/// Goes through every state; returns how many there are, or the shortest story that ends badly.
///
/// States are told apart by 64 bits of hash: of a million states, two have the same with a probability of
/// 1 in 30 million, and then one of them is left out.
pub(super) fn explore(start: System, seen: &mut Seen) -> Result<usize, String> {
    let mut known = HashSet::from([hash(&start)]);
    let mut steps: Vec<Option<Step>> = vec![None];
    let mut open = VecDeque::from([(0, start)]);
    while let Some((number, system)) = open.pop_front() {
        let events = system.events();
        if !system.is_over() && !events.iter().any(|event| event.is_bound_to_happen()) {
            return Err(tell(&steps, number, None, "nobody goes on", &system));
        }
        for event in events {
            let mut next = system.clone();
            match next.happen(event, seen) {
                Ok(()) if known.insert(hash(&next)) => {
                    open.push_back((steps.len(), next));
                    steps.push(Some((number, event)));
                }
                Ok(()) => {}
                Err(fault) => return Err(tell(&steps, number, Some(event), &fault, &system)),
            }
        }
    }
    Ok(steps.len())
}

fn hash(system: &System) -> u64 {
    let mut hasher = DefaultHasher::new();
    system.hash(&mut hasher);
    hasher.finish()
}

fn tell(
    steps: &[Option<Step>],
    mut number: usize,
    last: Option<Event>,
    fault: &str,
    before: &System,
) -> String {
    let mut events = Vec::from_iter(last);
    while let Some((earlier, event)) = steps[number] {
        events.push(event);
        number = earlier;
    }
    let events: Vec<String> = events.iter().rev().map(|event| format!("  {event:?}")).collect();
    format!("{}\n{fault}, in\n{before:?}", events.join("\n"))
}
