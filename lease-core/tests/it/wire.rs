//! The stored forms.
