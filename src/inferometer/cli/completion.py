"""`inferometer completion`: the script that gives a shell tab completion of commands, options and run ids."""

import click
from click.shell_completion import get_completion_class

from inferometer.cli.errors import echo

_WHERE = {
    "bash": 'eval "$(inferometer completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(inferometer completion zsh)" in ~/.zshrc',
    "fish": "inferometer completion fish | source in ~/.config/fish/config.fish",
}


@click.command(epilog="\b\n" + "\n".join(_WHERE.values()))
@click.argument("shell", type=click.Choice(list(_WHERE)))
def completion(shell: str) -> None:
    """Print the tab completion script of SHELL."""
    from inferometer.cli.group import group

    script = get_completion_class(shell)
    assert script is not None
    echo(script(group, {}, "inferometer", "_INFEROMETER_COMPLETE").source())
