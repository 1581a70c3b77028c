"""For each promise that was once broken, a script that prints what is refused or right."""
