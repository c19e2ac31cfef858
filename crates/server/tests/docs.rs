//! The generated pages say what the code says.

use windlass_testkit::docs::{compare_page, states_page};

#[test]
fn the_page_on_states_is_up_to_date() {
    compare_page("states.md", &states_page());
}
