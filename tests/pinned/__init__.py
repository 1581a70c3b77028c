"""What every public call answered on the commit before the package was rebuilt, and the test that it still does."""
