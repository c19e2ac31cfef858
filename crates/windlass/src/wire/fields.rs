//! The names of the fields of a body, as serde knows them: nobody keeps a second list.

use serde::{
    Deserializer,
    de::{DeserializeOwned, Error as _, Visitor, value::Error},
    forward_to_deserialize_any,
};

/// The names of the fields of `T`, as they are written; none, if it is no struct.
pub(crate) fn fields<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // A struct tells its names when it asks to be read. That there is nothing to read is no matter.
    let _ = T::deserialize(Names(&mut names));
    names
}

/// What is asked for a struct, and only notes the names of its fields.
struct Names<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("there is nothing to read"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(Error::custom("it is no struct"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::{super::NewJobBody, *};

    #[test]
    fn a_body_tells_its_fields_as_they_are_written() {
        let names = fields::<NewJobBody>();
        assert_eq!(names[..2], ["kind", "payload"]);
        assert!(names.contains(&"timeout_ms"), "{names:?}");
        assert_eq!(fields::<String>(), [""; 0]);
    }
}
