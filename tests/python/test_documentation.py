"""Goal: what `help()` shows and what editors show is the same, and says it all. Method: compares the stubs with
the module."""

import ast
import inspect
import pathlib

import tributary

STUBS = ast.parse((pathlib.Path(tributary.__file__).parent / "__init__.pyi").read_text())


def classes(tree):
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def functions(node):
    return {child.name: child for child in node.body if isinstance(child, ast.FunctionDef)}


def test_methods_are_those_of_the_stubs_with_their_texts():
    for name in ("Communicator", "ExactSum", "Request"):
        stub, real = classes(STUBS)[name], getattr(tributary, name)
        assert inspect.cleandoc(real.__doc__) == ast.get_docstring(stub)
        public = {method for method in vars(real) if not method.startswith("_")}
        assert public == {method for method in functions(stub) if not method.startswith("_")}
        for method in public:
            text = ast.get_docstring(functions(stub)[method])
            assert text and inspect.getdoc(getattr(real, method)) == text, method


def test_parameters_are_those_of_the_stubs():
    for name in ("Communicator", "ExactSum", "Request"):
        for method, stub in functions(classes(STUBS)[name]).items():
            if method.startswith("_") or stub.decorator_list and ast.unparse(stub.decorator_list[0]) == "property":
                continue
            parameters = inspect.signature(getattr(getattr(tributary, name), method)).parameters
            arguments = stub.args.args + stub.args.kwonlyargs
            assert list(parameters) == [argument.arg for argument in arguments], method


def test_everything_public_has_a_stub_and_a_text():
    stubs = {**classes(STUBS), **functions(STUBS)}
    for name in set(tributary.__all__) - {"__version__"}:
        assert ast.get_docstring(stubs[name]), name
        assert getattr(tributary, name).__doc__, name
    operators = {ast.unparse(node.targets[0]): ast.literal_eval(node.value)
                 for node in classes(STUBS)["Operator"].body if isinstance(node, ast.Assign)}
    assert operators == {member.name: member.value for member in tributary.Operator}
