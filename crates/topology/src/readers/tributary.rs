//! Tributary's own format, in TOML.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::error::{Fault, ReadError};
use crate::fabric::{Fabric, FabricError, VertexId};
use crate::hostlist;

const TABLES: &str = "[[switch]] with `name`, and `links`, `hosts` or both; \
                      [[aggregation-node]] with `name` and `at`; `root` before them";

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    root: Option<Spanned<String>>,
    #[serde(default)]
    switch: Vec<Switch>,
    #[serde(default)]
    aggregation_node: Vec<Node>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Switch {
    name: Spanned<String>,
    #[serde(default)]
    links: Vec<Spanned<String>>,
    #[serde(default)]
    hosts: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    name: Spanned<String>,
    at: Spanned<String>,
}

pub(super) fn read(text: &str) -> Result<Fabric, ReadError> {
    let file: File = toml::from_str(text).map_err(|error| {
        let message = error.message().to_string();
        ReadError::at(line_of(text, error.span().unwrap_or(0..0)), Fault::Toml(message))
    })?;
    if file.switch.is_empty() {
        return Err(ReadError::at(1, Fault::Nothing { allowed: TABLES }));
    }
    let mut reader = Reader { text, fabric: Fabric::new(), switches: BTreeMap::new() };
    for switch in &file.switch {
        reader.add_switch(&switch.name)?;
    }
    for switch in &file.switch {
        reader.join(switch)?;
    }
    for node in &file.aggregation_node {
        reader.add_aggregation_node(node)?;
    }
    if let Some(root) = &file.root {
        reader.prefer_root(root)?;
    }
    Ok(reader.fabric)
}

struct Reader<'a> {
    text: &'a str,
    fabric: Fabric,
    switches: BTreeMap<String, VertexId>,
}

impl Reader<'_> {
    fn add_switch(&mut self, name: &Spanned<String>) -> Result<(), ReadError> {
        let id = self.fabric.add_switch(name.get_ref()).map_err(|error| self.fault(name, error))?;
        self.switches.insert(name.get_ref().clone(), id);
        Ok(())
    }

    fn join(&mut self, switch: &Switch) -> Result<(), ReadError> {
        let id = self.switches[switch.name.get_ref()];
        for list in &switch.links {
            for name in self.expand(list)? {
                let Some(&other) = self.switches.get(&name) else {
                    let allowed = "in `links`, the name of a [[switch]]";
                    return Err(self.fault(list, Fault::Undescribed { name, allowed }));
                };
                self.fabric.add_link(id, other).map_err(|error| self.fault(list, error))?;
            }
        }
        for list in &switch.hosts {
            for name in self.expand(list)? {
                let host = self.host(&name).map_err(|error| self.fault(list, error))?;
                self.fabric.add_link(id, host).map_err(|error| self.fault(list, error))?;
            }
        }
        Ok(())
    }

    /// The host of that name; a host that is linked to several switches is listed by each.
    fn host(&mut self, name: &str) -> Result<VertexId, FabricError> {
        match self.fabric.find(name) {
            Some(host) if !self.switches.contains_key(name) => Ok(host),
            _ => self.fabric.add_host(name),
        }
    }

    fn add_aggregation_node(&mut self, node: &Node) -> Result<(), ReadError> {
        let Some(at) = self.fabric.find(node.at.get_ref()) else {
            let name = node.at.get_ref().clone();
            let allowed = "in `at`, the name of a [[switch]] or of a host of one";
            return Err(self.fault(&node.at, Fault::Undescribed { name, allowed }));
        };
        self.fabric
            .add_aggregation_node(node.name.get_ref(), at)
            .map_err(|error| self.fault(&node.name, error))
    }

    fn prefer_root(&mut self, root: &Spanned<String>) -> Result<(), ReadError> {
        let name = root.get_ref();
        if self.fabric.aggregation_node(name).is_none() && self.fabric.find(name).is_none() {
            let allowed = "in `root`, the name of an [[aggregation-node]], or of the [[switch]] \
                           or host that an aggregation node is called after";
            return Err(self.fault(root, Fault::Undescribed { name: name.clone(), allowed }));
        }
        self.fabric.prefer_root(name);
        Ok(())
    }

    fn expand(&self, list: &Spanned<String>) -> Result<Vec<String>, ReadError> {
        hostlist::expand(list.get_ref()).map_err(|error| self.fault(list, error))
    }

    fn fault(&self, at: &Spanned<String>, fault: impl Into<Fault>) -> ReadError {
        ReadError::at(line_of(self.text, at.span()), fault)
    }
}

fn line_of(text: &str, span: Range<usize>) -> usize {
    let before = text.as_bytes().get(..span.start).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostlist::HostlistError;

    const EXAMPLE: &str = include_str!("../../../../docs/topology-example.toml");

    #[test]
    fn the_documented_example_is_read() {
        let fabric = read(EXAMPLE).unwrap();
        assert_eq!(fabric.preferred_root(), Some("spine"));
        let neighbours = |name: &str| fabric.neighbours(fabric.find(name).unwrap()).len();
        assert_eq!(
            ["spine", "leaf0", "leaf1", "node01", "login1"].map(neighbours),
            [3, 17, 17, 1, 1]
        );
        let at = fabric.aggregation_node("leaf1-an").unwrap();
        assert_eq!(fabric.vertex(at).name, "leaf1");
    }

    #[test]
    fn mistakes_are_found_on_their_line() {
        let undescribed = |name: &str, allowed| Fault::Undescribed { name: name.into(), allowed };
        let cases = [
            ("", 1, Fault::Nothing { allowed: TABLES }),
            (
                "[[switch]]\nname = 'a'\nlinks = [\n  'b',\n]",
                4,
                undescribed("b", "in `links`, the name of a [[switch]]"),
            ),
            (
                "[[switch]]\nname = 'a'\nhosts = ['n[1-']",
                3,
                HostlistError::Brackets("n[1-".into()).into(),
            ),
            (
                "[[switch]]\nname = 'a'\n[[switch]]\nname = 'a'",
                4,
                FabricError::VertexTwice("a".into()).into(),
            ),
            (
                "[[switch]]\nname = 'a'\n[[aggregation-node]]\nname = 'n'\nat = 'x'",
                5,
                undescribed("x", "in `at`, the name of a [[switch]] or of a host of one"),
            ),
        ];
        for (text, line, fault) in cases {
            assert_eq!(read(text), Err(ReadError { line, fault }), "{text}");
        }
    }

    #[test]
    fn toml_mistakes_say_what_is_allowed() {
        let error = read("[[switch]]\nname = 'a'\nhost = ['n1']").unwrap_err();
        assert_eq!(error.line, 3);
        assert!(error.to_string().contains("`hosts`"), "{error}");
        let error = read("[[switch]]\nname = 'a'\n= 3").unwrap_err();
        assert_eq!(error.line, 3);
        let error = read("[[switch]]\nhosts = ['n1']").unwrap_err();
        assert!(error.to_string().contains("`name`"), "{error}");
    }
}
