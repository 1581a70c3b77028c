"""The studies: one file per published table or figure, each written against the public API only."""
